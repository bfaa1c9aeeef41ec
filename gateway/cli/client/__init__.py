"""Clients of a running gateway: chat, terminals, HTTP."""
