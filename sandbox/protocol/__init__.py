"""What gateway and bridge say to each other; both ends import it."""
