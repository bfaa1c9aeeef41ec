"""Sandboxes in memory, scripted, for tests."""
