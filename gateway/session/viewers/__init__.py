"""The viewers of a session's conversation."""
