"""Adapters of the ObjectStore port, and the wrapper and the probe that all of them share."""
