"""A gateway, an object store, and sessions whose workspaces are edited: a campaign kills, wipes and compares them.

Files are changed directly in a sandbox's directory, as a program inside would change them. A request may find the
gateway dead: then there is no answer, and that is no failure.
"""

import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx

from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import Process
from sync.objects.retrying import RequestLimits, RetryingObjects
from sync.snapshots.service import SnapshotService
from tests.campaign.places import TRUSTED, Place
from tests.campaign.size import report
from tests.campaign.sync.checker import Ledger, Tree, stored_tree
from tests.campaign.sync.cupboards import Cupboard
from tests.support.gateway import Gateway
from tests.support.launcher import UNTOUCHED, Launcher, Tampering
from tests.support.trees import Gardener, fingerprint
from tests.support.waiting import until

USER = "ada"
QUIET_AGENT = ["cat"]  # changes no file, ends with its input
PATIENCE = 60.0

Described = dict[str, Any]


class KeepingGateway(Gateway):
    """A gateway on a cupboard."""

    def __init__(self, data_dir: Path, cupboard: Cupboard, **settings: object) -> None:
        super().__init__(data_dir, **settings)
        self.cupboard = cupboard

    def environment(self) -> dict[str, str]:
        return super().environment() | self.cupboard.environ

    @property
    def halted(self) -> bool:
        """Whether it stopped at its crash point."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except FileNotFoundError:
            return False


class Kept:
    """One session: its files, and its known generations."""

    def __init__(self, arena: "SyncArena", session_id: str, rng: Random, user: str = USER) -> None:
        self._arena = arena
        self.id = session_id
        self.user = user
        self.rng = rng
        self.home = SandboxHome(arena.gateway.data_dir, session_id)
        self.gardener = _Gardener(self.home.kept, rng, arena.place)
        self.ledger = Ledger(session_id)

    # its files

    @property
    def disk(self) -> Tree:
        return fingerprint(self.home.kept)

    def write(self, name: str, content: bytes = b"x") -> None:
        """Write a file of the workspace, in place of any entry. Never writes through a symlink."""
        way = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(self.home.workspace / name, "wb", opener=lambda path, _: os.open(path, way, 0o644)) as file:
            file.write(content)
        self._arena.place.give(self.home.workspace / name)

    def wipe(self, *, whole: bool = False) -> None:
        """Delete the disk, with the `whole` state of the sandbox or without."""
        shutil.rmtree(self.home.root if whole else self.home.kept)

    @property
    def asides(self) -> list[Path]:
        return sorted(self.home.kept.glob(".aside-*"))

    def has_aside(self, disk: Tree) -> bool:
        """Whether `disk` is kept beside the roots."""
        return any(fingerprint(aside) == disk for aside in self.asides)

    @property
    def bridge(self) -> Process | None:
        """The process that everything in the sandbox dies with, if it lives."""
        found = self._arena.place.first_inside(self.home)
        return found if found is not None and found.alive else None

    async def kill_bridge(self) -> None:
        """kill -9, if there is one; it is dead when this returns."""
        if (victim := self.bridge) is not None:
            victim.signal(signal.SIGKILL)
            await until(lambda: not victim.alive, f"the bridge of {self.id} is dead", within=PATIENCE)

    # asking for it

    async def ask(self, method: str, path: str = "", **given: Any) -> httpx.Response | None:
        """None if the gateway died before it answered."""
        gateway = self._arena.gateway
        try:
            async with gateway.http(gateway.bearer(self.user)) as client:
                return await client.request(method, f"/api/sandboxes/{self.id}{path}", **given)
        except httpx.TransportError:
            return None
        except AttributeError as error:  # anyio asks a socket for its peer that is gone since it was connected
            if error.name != "getpeername":
                raise
            return None

    async def post(self, path: str, *, status: int = 200, **body: Any) -> Described:
        """The route's answer, which must have this `status`."""
        answer = await self.ask("POST", path, json=body)
        assert answer is not None, f"{path}: no answer\n{self._arena.log}"
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text}\n{self._arena.log}"
        told: Described = answer.json()
        return told

    async def status(self) -> Described:
        answer = await self.ask("GET", "/status")
        assert answer is not None, self._arena.log
        assert answer.status_code == 200, answer.text
        told: Described = answer.json()
        return told

    async def until(self, seen: Callable[[Described], object], what: str, *, within: float = PATIENCE) -> Described:
        """Wait until its description is as `seen` wants it."""
        told: Described = {}

        async def look() -> object:
            nonlocal told
            told = await self.status()
            return seen(told)

        await until(look, lambda: f"{self.id} {what}: {told}\n{self._arena.log}", within)
        return told

    async def running(self) -> Described:
        """Wait until its agent is there. A bridge that has just died may look alive, so its process is checked."""

        async def look() -> Described:
            assert self.bridge is not None
            told = await self.status()
            assert (told["status"], told["sandboxStatus"]) == ("running", "connected"), told
            return told

        return await until(look, lambda: f"{self.id} runs\n{self._arena.log}")

    async def clean(self) -> Described:
        """Wait until all known changes are kept."""
        return await self.until(lambda told: told["sync"]["state"] == "idle" and not told["sync"]["dirty"], "clean")

    async def durable(self) -> None:
        """A session's writes are stored in order: when this returns, all earlier ones are."""
        gateway = self._arena.gateway
        async with gateway.http(gateway.internal) as client:
            note = {"role": "user", "type": "note", "content": "mark"}
            answer = await client.post(f"/internal/sessions/{self.id}/messages", json=note)
        assert answer.status_code in (200, 201), answer.text

    async def sync(self) -> int:
        """Sync while nobody edits, and note the tree as the answered generation."""
        disk = self.disk
        generation = (await self.post("/sync"))["sync"]["generation"]
        assert isinstance(generation, int)
        self.ledger.told(generation, disk)
        return generation

    async def sleep(self) -> int:
        """The same, by putting it to sleep."""
        disk = self.disk
        told = await self.post("/sleep")
        assert (told["status"], told["sync"]["dirty"]) == ("sleeping", False), told
        generation: int = told["sync"]["generation"]
        self.ledger.told(generation, disk)
        return generation

    # comparing

    async def check_restored(self) -> None:
        """The sandbox runs and nobody has edited since it was restored: is it the right tree?"""
        generation = (await self.running())["sync"]["generation"]
        async with self._arena.vault() as vault:
            newest, _ = await stored_tree(vault, self.user, self.id)
            _, stored = await stored_tree(vault, self.user, self.id, generation)
        self.ledger.came_back(generation, self.disk, stored, newest)

    async def check_stored(self) -> None:
        """Check that the kept generations are what they were reported to be."""
        async with self._arena.vault() as vault:
            for generation in (await vault.pointer(self.user, self.id)).generations:
                if generation.number in self.ledger.known:
                    _, stored = await stored_tree(vault, self.user, self.id, generation.number)
                    self.ledger.holds(generation.number, stored)

    async def stored_at(self, when: float) -> Tree:
        """The newest generation at that time, in seconds since 1970."""
        async with self._arena.vault() as vault:
            kept = (await vault.pointer(self.user, self.id)).generations
            newest = max(generation.number for generation in kept if generation.at <= when)
            return (await stored_tree(vault, self.user, self.id, newest))[1]

    async def stored(self, number: int | None = None) -> tuple[int, Tree]:
        """A generation, the newest unless given: its number and its tree."""
        async with self._arena.vault() as vault:
            return await stored_tree(vault, self.user, self.id, number)


class _Gardener(Gardener):
    def __init__(self, home: Path, rng: Random, place: Place) -> None:
        super().__init__(home, rng, largest=400_000)
        self._given = home
        self._place = place

    def edit(self, times: int = 1) -> list[str]:
        made = super().edit(times)
        self._place.give(self._given)
        return made


class SyncArena:
    """`patches` are applied to every gateway that is started here."""

    def __init__(
        self,
        gateway: KeepingGateway,
        cupboard: Cupboard,
        seed: int,
        rng: Random,
        patches: tuple[str, ...] = (),
        place: Place = TRUSTED,
    ) -> None:
        self.place = place
        self.gateway = gateway
        self.patches = patches
        self.cupboard = cupboard
        self.seed = seed
        self.rng = rng
        self.sessions: list[Kept] = []

    @property
    def log(self) -> str:
        """The end of the gateway's log, without the lines of requests."""
        lines = [line for line in self.gateway.log[-200_000:].splitlines() if '"http.request"' not in line]
        return "\n".join(lines)[-5000:]

    async def logs(self, event: str, *, after: int) -> None:
        """Wait until the gateway has logged it behind that place in its log, which is one for all its starts."""
        await until(lambda: event in self.gateway.log[after:], lambda: f"{event}\n{self.log}", PATIENCE)

    async def create(self, session_id: str, user: str = USER, **wish: Any) -> Kept:
        """A session whose agent is there."""
        await self.gateway.create(session_id, user, **{"agent": QUIET_AGENT, **wish})
        session = self.adopt(session_id, user)
        await session.running()
        return session

    def adopt(self, session_id: str, user: str = USER) -> Kept:
        """Adopt a session that another client created."""
        session = Kept(self, session_id, Random(self.rng.random()), user)
        self.sessions.append(session)
        return session

    @asynccontextmanager
    async def vault(self) -> AsyncIterator[SnapshotService]:
        """The snapshots, read with empty caches."""
        async with RetryingObjects(self.cupboard.objects(), RequestLimits(), Random(0)) as store:
            yield SnapshotService(store)

    async def start(self, tampering: Tampering = UNTOUCHED) -> None:
        self.gateway.tampering = replace(tampering, patches=(*self.patches, *tampering.patches))
        await self.gateway.start()

    async def restart(self, **settings: object) -> None:
        """In order, and with other settings from now on."""
        await self.gateway.terminate()
        self.gateway.settings |= settings
        await self.start()

    def acquit(self, name: str, **figures: object) -> None:
        """Print the program's line, and fail if anybody has something to say."""
        problems = [problem for session in self.sessions for problem in session.ledger.problems]
        counts = {what: sum(each.ledger.counts[what] for each in self.sessions) for what in ("restored", "compared")}
        told = ", ".join(f"{what} {count}" for what, count in {**figures, **counts}.items())
        report(f"{name}: {told}; problems {len(problems)}; seed={self.seed}")
        assert problems == [], "\n".join([f"seed={self.seed}", *problems[:20], self.log])
        assert "session.crashed" not in self.gateway.log, f"seed={self.seed}\n{self.log}"


@asynccontextmanager
async def arena_on(
    directory: Path,
    cupboard: Cupboard,
    seed: int,
    rng: Random,
    *,
    launcher: Launcher | None = None,
    patches: tuple[str, ...] = (),
    place: Place = TRUSTED,
    **settings: object,
) -> AsyncIterator[SyncArena]:
    """A gateway on `cupboard`, impatient enough for a test. It does not try the store each time it starts: that takes
    seconds on some servers, and has tests of its own."""
    quick = {"SYNC_DEBOUNCE": 0.1, "SYNC_MAX_WAIT": 1, "DRAIN_TIMEOUT": 5, "OBJECTS_UNCHECKED": "true"}
    settings = {**quick, **place.settings, **settings}
    place.prepare(directory / "data")
    gateway = KeepingGateway(directory / "data", cupboard, **settings)
    gateway.launcher, gateway.tampering = launcher, Tampering(patches=patches)
    async with gateway:
        yield SyncArena(gateway, cupboard, seed, rng, patches, place)
