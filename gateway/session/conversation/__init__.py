"""Messages in order: numbered, stored, delivered, answered."""
