"""Shared by the fleet and the handles of its sandboxes: the engine, and finding, ending and naming the containers of
one installation. A container is ours if its labels say so; any other container with one of our names is left alone."""

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sandbox.client.endpoint import UnixEndpoint
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable
from sandbox.providers.container.document import container_name, home_of, label, labels
from sandbox.providers.container.doorway import DOOR, Doorway, open_door
from sandbox.providers.container.engine import Engine, EngineRefused
from sandbox.providers.container.engine_answers import state
from sandbox.providers.container.host_paths import HostPaths, host_paths, own_container
from sandbox.providers.container.installation import TRIALS, Installation, Propose
from sandbox.providers.container.note import ContainerNote, read_note
from sandbox.providers.container.switchboard import Switchboard
from sandbox.providers.local.host import LocalHost
from sandbox.providers.local.launch import listen
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import boot_id

LEVEL, ISOLATED = "container", "isolated"
TRASH = "trash-containers"
_KILL_SECONDS = 10.0
_MOUNTS = Path("/proc/self/mountinfo")


class Containers:
    def __init__(
        self,
        engine: Engine,
        propose: Propose | None,
        data_dir: Path,
        warn: Callable[[str], None],
        *,
        stop_timeout: float,
        level: str = LEVEL,
        limits: ResourceLimits = NO_LIMITS,
        met_limit: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.engine = engine
        self.level = level
        self.installation = Installation(data_dir, propose)
        self.host = LocalHost(
            data_dir, warn, stop_timeout=stop_timeout, trash=TRASH, limits=limits, met_limit=met_limit
        )
        self._switchboards: dict[str, Switchboard] = {}  # by session

    async def open(self) -> None:
        """Make the directories, and learn by which ids containers are ours. Raises SandboxFailed."""
        self.host.open()
        try:
            self.installation.open()
            await self.installation.settle()
        except OSError as exc:
            raise SandboxFailed(f"the data directory cannot be used: {exc}") from exc

    async def close(self) -> None:
        """Close every connection; containers go on."""
        for session_id in list(self._switchboards):
            await self.hang_up(session_id)
        self.host.close()

    def connect(self, note: ContainerNote, door: Doorway, listener: socket.socket, bridge: socket.socket) -> None:
        """Hand connections to a bridge in by way of `bridge`, from now on; takes over all three."""
        made = Switchboard(note.session_id, listener, door, note.token)
        made.let_in(bridge)
        self._switchboards[note.session_id] = made

    async def hang_up(self, session_id: str) -> None:
        if (found := self._switchboards.pop(session_id, None)) is not None:
            await found.close()

    def endpoint(self, note: ContainerNote) -> UnixEndpoint:
        """Where the bridge of that note is reached, or will be in a moment. Raises OSError."""
        if note.door and note.session_id not in self._switchboards:
            door = open_door(Path(note.door))
            listener = listen(self.host.sockets, note.socket)
            self._switchboards[note.session_id] = Switchboard(note.session_id, listener, door, note.token)
        return self.host.endpoint(note.socket, note.token)

    async def host_paths(self) -> HostPaths:
        return await find_host_paths(self.engine)

    def name(self, session_id: str) -> str:
        """Of the session's next container."""
        return container_name(self.installation.current, self.installation.home, session_id)

    def labels(self, session_id: str) -> dict[str, str]:
        """Of the session's next container."""
        return labels(self.installation.current, self.installation.home, session_id)

    async def find(self, session_id: str) -> dict[str, Any] | None:
        """The session's container, running or not; None if there is none of ours. Raises SandboxUnavailable."""
        for installation in self.installation.known:
            try:
                found = await self.engine.inspect(container_name(installation, self.installation.home, session_id))
            except EngineRefused as exc:
                raise _nothing_known(exc) from exc
            if found is not None and self._is_ours(found, session_id):
                return found
        return None

    async def all(self, *, stopped: bool = False) -> list[dict[str, Any]]:
        """Every container of this installation and this data directory. Raises SandboxUnavailable."""
        found = await self.of_installation(stopped=stopped)
        return [each for each in found if home_of(each) == self.installation.home]

    async def of_installation(self, *, stopped: bool = True, only: str | None = None) -> list[dict[str, Any]]:
        """The same, whichever data directory its roots are in, and those of trials; `only` the one with that id. Raises
        SandboxUnavailable."""
        try:
            return [
                found
                for installation in dict.fromkeys((*self.installation.known, TRIALS))
                for found in await self.engine.list(labels(installation), stopped=stopped, only=only)
            ]
        except EngineRefused as exc:
            raise _nothing_known(exc) from exc

    async def end(self, home: SandboxHome, *, patience: float) -> None:
        """End and remove the session's container; it has `patience` seconds to end in order. No error if there is
        none. Raises SandboxUnavailable, SandboxFailed; then its note stays, and it is found again."""
        found = await self.find(home.session_id)
        if found is None and await self._is_noted_by_another(home):
            home.drop_note()
            return
        if found is not None:
            try:
                if patience > 0 and runs(found):
                    await self.engine.stop(found["Id"], patience)
                await self.engine.remove(found["Id"])
            except EngineRefused as exc:
                raise _nothing_known(exc) from exc
        await self._end_orphan(home)
        await self.hang_up(home.session_id)
        if (note := read_note(home)) is not None and note.door:
            (Path(note.door) / DOOR).unlink(missing_ok=True)  # of a gateway that was killed
        home.drop_note()

    async def _is_noted_by_another(self, home: SandboxHome) -> bool:
        """Whether the note is of another data directory's container: this directory is a copy of that."""
        if (note := read_note(home)) is None:
            return False
        try:
            noted = await self.engine.inspect(note.container)
        except EngineRefused as exc:
            raise _nothing_known(exc) from exc
        return noted is not None and home_of(_labelled(noted)) not in ("", self.installation.home)

    async def _end_orphan(self, home: SandboxHome) -> None:
        """An engine that lost track of a container says that it is gone, and its programs run on: nobody else may have
        the roots before they have ended."""
        note = read_note(home)
        if note is None or note.boot != boot_id() or (first := note.first_inside) is None:
            return
        first.signal(signal.SIGKILL)
        if not await first.ended(_KILL_SECONDS):
            raise SandboxFailed(f"the first process of {home.session_id} does not end: {note.pid}")

    def _is_ours(self, found: Mapping[str, Any], session_id: str) -> bool:
        said = _labelled(found)
        ours = label(said, "installation") in self.installation.known and home_of(said) == self.installation.home
        return ours and label(said, "session") == session_id


async def find_host_paths(engine: Engine) -> HostPaths:
    """Where the engine's host has the files of this process. Raises SandboxUnavailable, SandboxFailed, BadAnswer."""
    own = own_container(await asyncio.to_thread(_MOUNTS.read_text))
    return host_paths(await engine.inspect(own) if own is not None else None)


def _labelled(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where an inspected container has its labels."""
    config = found.get("Config")
    return config if isinstance(config, dict) else {}


def runs(found: Mapping[str, Any]) -> bool:
    """Whether an inspected container runs."""
    return state(found).get("Running") is True


def _nothing_known(exc: EngineRefused) -> SandboxUnavailable:
    return SandboxUnavailable(f"nothing is known of the sandbox: {exc}")
