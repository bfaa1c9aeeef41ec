"""What a program's bytes make of a terminal's screen, and a picture of it for whoever comes late."""
