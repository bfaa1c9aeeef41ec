"""The workspace in the object store: when to sync, the stored format, snapshots, object stores."""
