"""Periodic work: retention, garbage collection, counts."""
