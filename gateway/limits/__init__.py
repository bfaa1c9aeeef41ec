"""Limits on one user, and on all users together."""
