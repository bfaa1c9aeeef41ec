"""The kept tree of a sandbox: its parts, how to read it, how to restore it."""
