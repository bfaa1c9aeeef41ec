"""What one user, and all of them, may have at once."""
