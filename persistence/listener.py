"""Events that a store reports by itself."""

from typing import Protocol

from persistence.record import Outcome


class StoreListener(Protocol):
    """Called on the loop. Its methods must not raise, and must not wait."""

    def grown(self, session_id: str) -> None:
        """There are new records to read. It may be called too often, and another process's records may be missed: so
        readers also look now and then."""
        ...

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        """The result of the Spooled record at `seq`: Stored, Duplicate, Dead, Fenced or Rejected. In seq order per
        session, perhaps twice. Also called for records that were spooled before a restart, and perhaps for a marker,
        which is Stored."""
        ...


class NobodyListens:
    """The listener of a store that has no other."""

    def grown(self, session_id: str) -> None:
        pass

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        pass
