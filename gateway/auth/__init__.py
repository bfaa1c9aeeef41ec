"""Who may come in: tokens, tickets, and the policy in front of every route."""
