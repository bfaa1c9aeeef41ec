"""Recordings of a session's inbox, complete enough to be replayed."""
