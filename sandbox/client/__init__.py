"""The gateway's end of a bridge."""
