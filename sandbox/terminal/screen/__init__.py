"""A model of a terminal's screen from a program's bytes, and a picture of it for a late viewer."""
