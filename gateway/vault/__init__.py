"""Credentials of users: sealed in the store, opened for the proxy alone, refreshed before they expire."""
