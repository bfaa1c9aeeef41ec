"""One module per command of `holdfast`."""
