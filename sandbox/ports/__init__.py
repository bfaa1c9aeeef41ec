"""The ports through which the gateway uses a sandbox."""
