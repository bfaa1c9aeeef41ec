"""Settings, and what their values mean."""
