"""The queue in front of a store: FIFO per session, group commit."""
