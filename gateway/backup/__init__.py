"""A copy of a gateway's data directory that can be restored: taken while it runs, put back where nothing is."""
