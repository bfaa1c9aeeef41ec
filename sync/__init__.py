"""The workspace in the object store. Its parts arrive with the sync state machine."""
