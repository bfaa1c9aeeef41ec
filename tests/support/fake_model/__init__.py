"""A model that costs nothing and does what it is told: for real agents in tests."""
