"""One module per dialect of terminal clients."""
