"""The way out of a sandbox: a proxy in a process of its own, and the gateway's end of it."""
