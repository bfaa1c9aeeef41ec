"""What a store tells of its own accord."""

from typing import Protocol

from persistence.record import Outcome


class StoreListener(Protocol):
    """Whoever wants to know. Called on the loop; must not raise, and must not wait."""

    def grown(self, session_id: str) -> None:
        """There are new records to read. May be told too often, and another process's may be missed: look now and
        then."""
        ...

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        """What became of the record at `seq` that was Spooled: Stored, Duplicate, Dead, Fenced or Rejected. In seq
        order per session, perhaps twice; told of what was spooled before a restart, too, and perhaps of a marker, which
        is Stored."""
        ...


class NobodyListens:
    """The listener of a store that nobody asked to listen to."""

    def grown(self, session_id: str) -> None:
        pass

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        pass
