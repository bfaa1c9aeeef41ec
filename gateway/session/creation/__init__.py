"""How sessions are made: created, or branched from another."""
