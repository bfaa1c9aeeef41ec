"""Finds and removes left-over containers (left_over.py), and watches for containers that end."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from sandbox.ports.leftovers import Leftover
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable
from sandbox.providers.container.containers import Containers
from sandbox.providers.container.document import home_of, label, labels
from sandbox.providers.container.engine import EngineRefused
from sandbox.providers.container.left_over import why_left_over
from sandbox.providers.container.note import ContainerNote, read_note
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import boot_id

_ENDINGS = ("die", "died")


class Clearing:
    def __init__(self, containers: Containers, clock: Callable[[], float] = time.time) -> None:
        self._containers = containers
        self._clock = clock

    async def look(self) -> list[Leftover]:
        """Raises SandboxUnavailable."""
        with suppress(OSError):  # the disk is full: it is noted the next time
            await self._containers.installation.settle()
        listed = await self._containers.of_installation()
        left = [(found, why) for found in listed if (why := self._why(found)) is not None]
        return [Leftover(str(found.get("Id")), label(found, "session"), why) for found, why in left]

    async def clear(self, leftover: Leftover) -> bool:
        """Check again while nobody starts or stops the session, and remove it. False if somebody does so now: that
        removes the leftover, and may take as long as a pull. Raises SandboxUnavailable, SandboxFailed."""
        home = self._home(leftover.session_id)
        if home is None:
            return await self._remove(leftover)
        turn = self._containers.host.turn(leftover.session_id)
        if turn.locked():
            return False
        async with turn:
            removed = await self._remove(leftover)
            note = read_note(home)
            if removed and note is not None and note.container == leftover.name:
                try:
                    home.drop_note()
                except OSError as exc:
                    why = exc.strerror or exc
                    raise SandboxFailed(f"the note of {leftover.session_id} could not be removed: {why}") from exc
            return removed

    async def _remove(self, leftover: Leftover) -> bool:
        found = await self._containers.of_installation(only=leftover.name)
        if not any(self._why(each) is not None for each in found):
            return False
        try:
            await self._containers.engine.remove(leftover.name)
        except EngineRefused as exc:
            raise SandboxUnavailable(f"the rest of a sandbox could not be removed: {exc.reason}") from exc
        return True

    async def endings(self) -> AsyncIterator[None]:
        """See LeavesThings. The engine also reports events from a moment before, so none is missed at the beginning."""
        engine, since = self._containers.engine, int(self._clock())
        await engine.info()
        yield
        async with aclosing(engine.events(labels(self._containers.installation.current), since=since)) as events:
            async for event in events:
                if (event.get("Action") or event.get("status")) in _ENDINGS:
                    yield
        raise SandboxUnavailable("the container engine reports nothing any more")

    def is_noted(self, found: Mapping[str, Any]) -> bool:
        """Whether the note of its session names this container: only then can it be reached."""
        return self._note_of(found) is not None

    def _why(self, found: Mapping[str, Any]) -> str | None:
        note, home = self._note_of(found), self._containers.installation.home
        return why_left_over(found, home, named=note is not None, alive=_alive(note), now=self._clock())

    def _note_of(self, found: Mapping[str, Any]) -> ContainerNote | None:
        home = self._home(label(found, "session")) if home_of(found) == self._containers.installation.home else None
        note = read_note(home) if home is not None else None
        return note if note is not None and note.container == found.get("Id") else None

    def _home(self, session_id: str) -> SandboxHome | None:
        with suppress(ValueError):  # a label of ours that we did not write
            return self._containers.host.home(session_id)
        return None


def _alive(note: ContainerNote | None) -> bool:
    if note is None or note.boot != boot_id() or (first := note.first_inside) is None:
        return False
    return first.alive
