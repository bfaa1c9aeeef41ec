"""Records posted to an HTTP service."""
