"""What goes through a session's inbox, recorded: enough to do it again."""
