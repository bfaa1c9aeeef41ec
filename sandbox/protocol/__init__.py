"""The messages between gateway and bridge; both ends import it."""
