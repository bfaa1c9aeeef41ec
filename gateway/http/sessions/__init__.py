"""Routes about sessions: life, list, logs, shares, tickets."""
