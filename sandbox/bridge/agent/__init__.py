"""The agent: its process, its lines, its link."""
