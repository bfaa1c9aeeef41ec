"""A session's terminals."""
