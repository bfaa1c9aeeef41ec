"""The sessions that are loaded here, by their ids."""

from collections.abc import Iterator

from gateway.session.actor import SessionActor


class LoadedSessions:
    """Iterating is safe while sessions come and go. A session in `purging` may be neither found nor loaded."""

    def __init__(self) -> None:
        self._actors: dict[str, SessionActor] = {}
        self.purging: set[str] = set()

    def __iter__(self) -> Iterator[SessionActor]:
        return iter(list(self._actors.values()))

    def __len__(self) -> int:
        return len(self._actors)

    def get(self, session_id: str) -> SessionActor | None:
        return self._actors.get(session_id)

    def add(self, actor: SessionActor) -> None:
        self._actors[actor.id] = actor

    def remove(self, actor: SessionActor) -> bool:
        """Remove an actor. False if it was not there: the session's next actor may have taken its place."""
        if self._actors.get(actor.id) is not actor:
            return False
        del self._actors[actor.id]
        return True
