"""A store whose session `s` becomes another one while it is read."""

from typing import Any

from persistence.memory import MemoryStore
from persistence.record import Record, Session, Write


class ReplacedStore(MemoryStore):
    """Just before read number `step` (of a session or of its records) the session `s` is purged, and `then`, if there
    is one, has its id, with records of the same seqs."""

    def __init__(self, step: int, then: Session | None) -> None:
        super().__init__()
        self._step = step
        self._then = then

    async def fill(self, session: Session, count: int) -> None:
        """The session with `count` records; their cids are its user's name and their seq."""
        cid = session.user_id
        await self.create(session)
        records = [Record("s", seq, f"{cid}{seq}", "user", "message", b"{}", 0.0) for seq in range(1, count + 1)]
        await self.commit([Write("s", record) for record in records])

    async def _read(self) -> None:
        self._step -= 1
        if self._step == 0:
            await self.purge("s")
            if self._then is not None:
                await self.fill(self._then, 100)

    async def find(self, session_id: str) -> Session | None:
        await self._read()
        return await super().find(session_id)

    async def messages(self, session_id: str, **asked: Any) -> list[Record]:
        await self._read()
        return await super().messages(session_id, **asked)
