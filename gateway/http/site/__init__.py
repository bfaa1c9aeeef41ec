"""The page, and signing in to it."""
