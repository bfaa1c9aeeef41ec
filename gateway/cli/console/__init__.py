"""The terminal that a person sits at."""
