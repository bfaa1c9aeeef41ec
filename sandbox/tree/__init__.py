"""The kept tree of a sandbox: what it is made of, how it is read, and how it is put back."""
