"""Authentication: tokens, tickets, and the policy in front of every route."""
