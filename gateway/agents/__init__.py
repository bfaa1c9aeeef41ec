"""Readers of agent output: chat frames in, records out."""
