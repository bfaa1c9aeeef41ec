"""What the terminals that exist speak: one module each."""
