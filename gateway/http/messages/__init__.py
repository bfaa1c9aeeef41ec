"""Routes that read and write conversations."""
