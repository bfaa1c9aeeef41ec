"""What was spent on models, as the API shows it. Pure."""

from typing import Any

from gateway.egress.budget import Spent
from gateway.egress.prices import NANO


def shown_spent(spent: Spent) -> dict[str, Any]:
    tokens = spent.tokens
    return {
        "requests": spent.requests,
        "inputTokens": tokens.input,
        "outputTokens": tokens.output,
        "cacheReadTokens": tokens.cache_read,
        "cacheWriteTokens": tokens.cache_write,
        "costUsd": spent.cost / NANO,
        "unpricedTokens": spent.unpriced,
        "estimated": spent.estimated,
    }


def grown(now: Spent, before: Spent) -> Spent:
    """What has come since; all of it where the count began anew."""
    if now.requests < before.requests or now.or_more(before) != now:
        return now
    tokens, old = now.tokens, before.tokens
    return Spent(
        now.requests - before.requests,
        type(tokens)(
            tokens.input - old.input,
            tokens.output - old.output,
            tokens.cache_read - old.cache_read,
            tokens.cache_write - old.cache_write,
        ),
        now.cost - before.cost,
        now.unpriced - before.unpriced,
        now.estimated - before.estimated,
    )
