"""What a hostile program would try from inside a sandbox."""
