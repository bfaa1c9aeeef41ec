"""Routes about files and snapshots."""
