"""Sandboxes as processes of this machine."""
