"""Terminals: the parts that both ends of a sandbox share. The bridge has the PTYs, the gateway has the viewers."""
