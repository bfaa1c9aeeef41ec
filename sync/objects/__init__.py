"""Adapters of the ObjectStore port, and what every one of them is wrapped in and checked with."""
