"""The life of a session's sandbox."""
