"""Live changes of all sessions, for `/ws/events`."""
