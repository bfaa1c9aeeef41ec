"""Trees: files, archives, routes."""
