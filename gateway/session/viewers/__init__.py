"""Who watches a session."""
