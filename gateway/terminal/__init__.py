"""One viewer of a terminal, and the dialects that clients speak."""
