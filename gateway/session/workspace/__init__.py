"""A session's files and their snapshots."""
