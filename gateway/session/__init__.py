"""One session: its actor, its pending window, its transcript."""
