"""What a session is, and what it hands to its parts."""
