"""Leftovers of sandboxes at a provider that nobody can use any more, for clearing."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Leftover:
    """`name` is the provider's own; `session_id` may be empty; `why` is for people."""

    name: str
    session_id: str
    why: str


@runtime_checkable
class LeavesThings(Protocol):
    """A fleet whose sandboxes do not vanish when they end. Every method may raise SandboxUnavailable."""

    async def leftovers(self) -> list[Leftover]:
        """The present leftovers. A running, reachable sandbox is not one; nor is anything that a start is making."""
        ...

    async def clear(self, leftover: Leftover) -> bool:
        """Remove it, if it is still a leftover. False: it is not, or is gone. May raise SandboxFailed."""
        ...

    def endings(self) -> AsyncIterator[None]:
        """Yields when this has begun to listen, and whenever a sandbox has ended since; goes on until the provider goes
        away (SandboxUnavailable)."""
        ...
