"""Limits of a whole sandbox on this host, by the kernel's control groups."""
