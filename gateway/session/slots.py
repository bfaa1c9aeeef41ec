"""How many sessions may do the same thing at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Slots:
    """How much may happen at once: so much in all, and half of that for one user, who cannot hold up all others."""

    def __init__(self, most: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._most_of_one = max(1, most // 2)
        self._by_user: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def of(self, user_id: str) -> AsyncIterator[None]:
        """One of them, when there is one."""
        own, waiting = self._by_user.get(user_id, (asyncio.Semaphore(self._most_of_one), 0))
        self._by_user[user_id] = own, waiting + 1
        try:
            async with own, self._all:
                yield
        finally:
            own, waiting = self._by_user.pop(user_id)
            if waiting > 1:
                self._by_user[user_id] = own, waiting - 1
