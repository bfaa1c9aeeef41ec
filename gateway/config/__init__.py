"""Settings, and the meaning of their values."""
