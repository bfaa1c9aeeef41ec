"""What the gateway asks of a sandbox."""
