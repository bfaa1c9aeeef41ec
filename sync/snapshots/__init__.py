"""Snapshots: push, restore, verify, garbage collection."""
