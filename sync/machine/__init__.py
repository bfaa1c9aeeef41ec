"""When to sync: the state machine and its driver."""
