"""A session: one task that owns its conversation, sandbox, viewers and workspace."""
