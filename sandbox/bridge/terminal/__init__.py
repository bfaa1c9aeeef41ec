"""Terminals: PTYs, viewers, routes."""
