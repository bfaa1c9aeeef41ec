"""Checks whether every object that a session's generations name exists. It does not read content (`verify` does)."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

from sync.errors import Damaged
from sync.format.keys import Keys
from sync.format.manifest import ManifestHead
from sync.ports import ObjectStore
from sync.snapshots.parallel import each
from sync.snapshots.repository import AT_ONCE, Repository


@dataclass(frozen=True, slots=True)
class Kept:
    """A session that is known to have a stored generation."""

    session_id: str
    keys: Keys  # of its user
    generation: int


class Presence:
    """Remembers its findings of one user, so that sessions that share packs cost little. Check the sessions user by
    user."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._shelf: Repository | None = None
        self._manifests: dict[str, ManifestHead] = {}
        self._packs: set[str] = set()

    async def lacking(self, kept: Kept) -> str | None:
        """The missing or damaged objects of the session, as a text; None if all is there. Raises ObjectsUnavailable,
        ObjectsRefused."""
        shelf = self._of(kept.keys)
        try:
            found = await shelf.pointer(kept.session_id)
            if found is None:
                return f"generation {kept.generation} was stored, but its pointer is missing"
            pointer, _ = found
            if pointer.newest.number < kept.generation:
                return f"generation {kept.generation} was stored, but the newest one there is {pointer.newest.number}"
            named = await self._packs_of(shelf, {generation.manifest for generation in pointer.generations})
            if missing := await shelf.gone(named - self._packs):
                return f"{len(missing)} packs are missing, such as {min(missing)}"
            self._packs |= named
        except Damaged as error:
            return str(error)
        return None

    async def _packs_of(self, shelf: Repository, manifests: set[str]) -> set[str]:
        """The packs that these manifests name, and those of the manifests that they build on."""
        packs: set[str] = set()
        done: set[str] = set()
        while waiting := manifests - done:
            unknown = sorted(waiting - self._manifests.keys())
            self._manifests |= zip(unknown, await each(shelf.manifest_head, unknown, at_once=AT_ONCE), strict=True)
            packs.update(pack for name in waiting for pack in self._manifests[name].packs)
            done |= waiting
            manifests = {base for name in waiting for base in self._manifests[name].bases}
        return packs

    def _of(self, keys: Keys) -> Repository:
        if self._shelf is None or self._shelf.keys != keys:
            self._shelf = Repository(self._store, keys, grace=0.0, keep=1)
            self._manifests, self._packs = {}, set()
        return self._shelf


async def look(
    store: ObjectStore, sessions: Iterable[Kept], told: Callable[[int], None] = lambda done: None
) -> AsyncIterator[tuple[Kept, str | None]]:
    """Each session with its missing objects. `told` is called with the number of sessions done."""
    presence = Presence(store)
    for done, kept in enumerate(sessions, 1):
        yield kept, await presence.lacking(kept)
        told(done)
