"""Who may come in: tokens, tickets, and one policy table over every route."""
