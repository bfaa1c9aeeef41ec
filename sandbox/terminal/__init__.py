"""Terminals: what both ends of a sandbox know of them. The bridge has the PTYs, the gateway has the viewers."""
