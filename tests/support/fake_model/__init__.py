"""A model that costs nothing and follows a script: for real agents in tests."""
