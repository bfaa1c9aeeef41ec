"""The values that a session stores, and the ports that it hands to its parts."""
