"""Readers of agent output, one module per agent dialect: frame in, records out."""
