"""A user's use and limits, for `GET /api/me`."""

import asyncio
from dataclasses import dataclass
from typing import Any

from gateway.limits.quota import SESSIONS, STORED, Quota
from gateway.limits.start_turns import StartTurns
from persistence.errors import StoreUnavailable
from persistence.record import Usage

ASK_SECONDS = 1.0  # then the answer is sent without the user's use


@dataclass(frozen=True, slots=True)
class Rates:
    """The limits per second."""

    requests: int
    agent_records: int


async def shown_limits(user: str, quota: Quota, turns: StartTurns, rates: Rates) -> dict[str, Any]:
    """By name; `used` is null where it is not known, or is a rate."""
    usage: Usage | None = None
    try:
        async with asyncio.timeout(ASK_SECONDS):
            usage = await quota.recent(user)
    except (StoreUnavailable, TimeoutError):
        pass
    sessions = None if usage is None else usage.sessions
    stored = None if usage is None else usage.record_bytes + usage.snapshot_bytes
    running = turns.running_of(user)
    return {
        "sessions": _shown(sessions, quota.limits.sessions, SESSIONS),
        "running": _shown(running, turns.limits.running_per_user, "HOLDFAST_MAX_RUNNING_PER_USER"),
        "stored": _shown(stored, quota.limits.stored, STORED),
        "requests": _shown(None, rates.requests, "HOLDFAST_MAX_REQUESTS_PER_USER"),
        "agentRecords": _shown(None, rates.agent_records, "HOLDFAST_MAX_AGENT_RECORDS"),
    }


def _shown(used: int | None, most: int, setting: str) -> dict[str, Any]:
    return {"used": used, "max": most, "setting": setting}
