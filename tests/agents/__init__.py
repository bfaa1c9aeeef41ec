"""Real agents, as `make agents` installs them: run by `make test-agents`."""
