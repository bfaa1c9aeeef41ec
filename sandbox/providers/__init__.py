"""One sandbox provider per file."""
