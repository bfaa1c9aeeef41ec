"""One message store per file."""
