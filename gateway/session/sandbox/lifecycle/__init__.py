"""The session's life: a pure table. table.py has the essay and the table."""
