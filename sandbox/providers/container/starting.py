"""One start of one container: made, noted, let in through the door, configured, and awaited.

A container that ends on its way is noticed at once, whatever the reason: nobody waits for a bridge that will not
come.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sandbox.client.bridge_requests import CallFailed, call
from sandbox.ports.sandbox import SandboxUnavailable
from sandbox.providers.container import document, doorway
from sandbox.providers.container.containers import ISOLATED, Containers
from sandbox.providers.container.document import ContainerPlan
from sandbox.providers.container.engine import EngineRefused
from sandbox.providers.container.engine_answers import one_line, state
from sandbox.providers.container.note import ContainerNote, write_note
from sandbox.providers.local.launch import listen, open_log
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import boot_id, find

T = TypeVar("T")


class ContainerFailed(Exception):
    """It did not come up. The text is for the user."""


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """`config` and `token` are secret: they go through the door, and to nobody else."""

    containers: Containers
    home: SandboxHome
    plan: ContainerPlan
    door: Path
    owner: int  # the uid that knocks, as this host counts
    token: str
    config: bytes
    seconds: float
    on_warnings: Callable[[Sequence[str]], None]

    async def run(self) -> None:
        """Return when the bridge answers. Raises ContainerFailed, SandboxUnavailable; the container is the caller's to
        end."""
        try:
            await self._run()
        except (CallFailed, EngineRefused, OSError) as exc:
            raise ContainerFailed(_words(exc)) from exc

    async def _run(self) -> None:
        with contextlib.ExitStack() as ours:  # descriptors for the bridge; none of them may stay open here
            config, config_end = os.pipe()
            ours.callback(os.close, config)
            ours.callback(os.close, config_end)
            log = open_log(self.home.bridge_log)
            ours.callback(os.close, log)
            listener = ours.enter_context(listen(self.containers.host.sockets, self.home.socket))
            door = ours.enter_context(doorway.opened(self.door))
            note = await self._create()
            given = [config, listener.fileno(), log]
            async with self._not_beyond_its_end(note.container) as racing:
                if self.containers.level == ISOLATED:
                    bridge = await racing(door.hand_over_and_keep([config, log], self.owner))
                    note = replace(note, door=str(self.door))
                    self.containers.connect(note, door.kept(), listener.dup(), bridge)
                    first = find(await self._first_of(note.container))
                else:
                    letting_in = door.hand_over(given, self.owner, lambda pid: self._is_first(note.container, pid))
                    caller = await racing(letting_in)
                    first = find(caller.pid) if caller.pid else None
                if first is not None:
                    note = replace(note, pid=first.pid, started=first.started)
                write_note(self.home, note)
                kept = os.dup(config_end)
                ours.close()
                # More than a pipe holds waits for the bridge to read it; should that end, the write fails.
                await racing(asyncio.to_thread(_write_all, kept, self.config))
                await racing(self._healthy())

    async def _create(self) -> ContainerNote:
        """Make the container, note it, and let it run."""
        engine, session_id = self.containers.engine, self.plan.session_id
        name = self.containers.name(session_id)
        creating = asyncio.create_task(engine.create(name, document.container(self.plan)), name="container.create")
        try:
            # The engine's work cannot be called back: the container must be there before it can be removed.
            container, warnings = await asyncio.shield(creating)
        except asyncio.CancelledError:
            await _over(creating)
            raise
        self.on_warnings(warnings)
        note = ContainerNote(session_id, self.plan.incarnation, container, self.home.socket, self.token, boot_id())
        write_note(self.home, note)
        await engine.start(container)
        return note

    async def _healthy(self) -> None:
        await call(self.containers.host.endpoint(self.home.socket), "GET", "/health", timeout=self.seconds)

    async def _is_first(self, container: str, pid: int) -> bool:
        return await self._first_of(container) == pid

    async def _first_of(self, container: str) -> int:
        found = state(await self.containers.engine.inspect(container)).get("Pid")
        return found if isinstance(found, int) else 0

    @contextlib.asynccontextmanager
    async def _not_beyond_its_end(self, container: str) -> AsyncIterator[Callable[[Awaitable[T]], Awaitable[T]]]:
        """Awaits something until the container has ended, or the time for a start is over."""
        ending = asyncio.create_task(self.containers.engine.wait(container, self.seconds), name="container.wait")

        async def racing(work: Awaitable[T]) -> T:
            working = asyncio.ensure_future(work)
            try:
                await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
                if working.done() and working.exception() is None:
                    return working.result()
                if not ending.done() and not isinstance(working.exception(), SandboxUnavailable):
                    # Its listener is closed, or its pipe: why it ended is the better answer, and about to come.
                    await asyncio.wait({ending}, timeout=1.0)
                if not ending.done():
                    return working.result()
                raise ContainerFailed(await self._reason(container, ending))
            finally:
                working.cancel()
                await _over(working)

        try:
            yield racing
        finally:
            ending.cancel()
            await _over(ending)

    async def _reason(self, container: str, ending: "asyncio.Task[int | None]") -> str:
        """Why it ended. Raises the errors of the engine's `wait`, except its timeout."""
        try:
            code = ending.result()
        except TimeoutError:
            return f"no answer within {self.seconds:g} s"
        ended = state(await self.containers.engine.inspect(container))
        if ended.get("OOMKilled"):
            return "its memory ran out: give it a higher limit"
        said = ended.get("Error")
        return f"it ended at once with code {code}" + (f": {one_line(str(said))}" if said else "")


async def _over(work: "asyncio.Future[Any]") -> None:
    """Wait for its end, with any result."""
    await asyncio.wait({work})
    if not work.cancelled():
        work.exception()


def _words(exc: Exception) -> str:
    if isinstance(exc, EngineRefused):
        return exc.reason
    return getattr(exc, "strerror", None) or str(exc)


def _write_all(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb") as pipe:
        pipe.write(content)
