"""System calls that need care: directories, processes, removal."""
