"""The front door: launcher, auth, routes, sockets, session actors; the only package that wires the others."""
