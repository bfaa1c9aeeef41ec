"""The in-sandbox end: runs the agent and commands, and speaks to the gateway over one socket."""
