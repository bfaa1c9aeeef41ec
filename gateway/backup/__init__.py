"""Backups of a gateway's data directory: taken while it runs, restored into an empty place."""
