"""Gateways that sync, branch, forget and collect at the same time, in every order that a scheduler may choose: whatever
a pointer names is there, at every moment.

Each request to the store waits until the simulation lets it go; it may fail, its answer may be lost, and whoever made
it may be cancelled. Time passes between any two requests, a day for a busy sync if need be; only a single request does
not take longer than a fifth of the grace.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import pytest

from sandbox.protocol.entry import Entry
from sync.errors import NoSuchSnapshot, SyncFailed
from sync.format import manifest as manifests
from sync.format import pointer as pointers
from sync.format.keys import Keys
from sync.objects.memory import MemoryObjects
from sync.ports import Conflict, Found, Got, ObjectsUnavailable
from sync.snapshots.service import SnapshotService
from tests.campaign.size import report, sized
from tests.support.keeping import DAY, USER, Clock, MemorySession, problems, push, vault_on

pytestmark = pytest.mark.virtual_time

T = TypeVar("T")
SLOWEST = DAY / 5
AT_ONCE = 4
EXPECTED = (SyncFailed, NoSuchSnapshot, Conflict, ObjectsUnavailable, asyncio.CancelledError)


@dataclass(eq=False)
class Waiting:
    """A request that was made and has not been let go."""

    verb: str
    key: str
    since: float
    go: asyncio.Future[str]


class GatedObjects(MemoryObjects):
    """A gateway's way to the store that all of them share."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world

    async def put(self, key: str, content: bytes) -> str:
        return await self._world.ask("put", key, lambda: self._world.store.put(key, content))

    async def create(self, key: str, content: bytes) -> str:
        return await self._world.ask("create", key, lambda: self._world.store.create(key, content))

    async def replace(self, key: str, content: bytes, etag: str) -> str:
        return await self._world.ask("replace", key, lambda: self._world.store.replace(key, content, etag))

    async def get(self, key: str) -> Got | None:
        return await self._world.ask("get", key, lambda: self._world.store.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return await self._world.ask("get_range", key, lambda: self._world.store.get_range(key, start, length))

    async def head(self, key: str) -> Found | None:
        return await self._world.ask("head", key, lambda: self._world.store.head(key))

    async def delete(self, key: str) -> None:
        await self._world.ask("delete", key, lambda: self._world.store.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[Found]:
        async def listed() -> tuple[Found, ...]:
            return tuple([found async for found in self._world.store.list(prefix)])

        for found in await self._world.ask("list", prefix, listed):
            yield found


@dataclass
class World:
    rng: Random
    store: MemoryObjects = field(default_factory=MemoryObjects)
    clock: Clock = field(default_factory=Clock)
    waiting: list[Waiting] = field(default_factory=list)
    at_work: dict[asyncio.Task[None], str] = field(default_factory=dict)  # and the session it works on, if any
    sessions: dict[str, MemorySession] = field(default_factory=dict)
    trees: dict[str, dict[bytes, Entry]] = field(default_factory=dict)  # by manifest
    seen: Counter[str] = field(default_factory=Counter)
    gateways: list[SnapshotService] = field(default_factory=list)

    # -- the store ----------------------------------------------------------------------------------------------------

    async def ask(self, verb: str, key: str, do: Callable[[], Awaitable[T]]) -> T:
        request = Waiting(verb, key, self.clock.seconds, asyncio.get_running_loop().create_future())
        self.waiting.append(request)
        try:
            outcome = await request.go
        finally:
            if request in self.waiting:
                self.waiting.remove(request)
        if outcome == "away":
            raise ObjectsUnavailable("injected")
        result = await do()
        self.check_named()
        if outcome == "lost":
            raise ObjectsUnavailable("injected")
        return result

    def check_named(self) -> None:
        """All that any pointer names is there."""
        keys, there = Keys.of_user(USER), self.store._kept
        for key in [key for key in there if key.endswith("/pointer")]:
            session_id = keys.session_in(key)
            assert session_id is not None
            for generation in pointers.decode(session_id, there[key].content).generations:
                for name in (generation.manifest, *self.head(generation.manifest).bases):
                    for pack in self.head(name).packs:
                        assert keys.pack(pack) in there, f"a pack of {session_id}/{generation.number} is gone"

    def head(self, name: str) -> manifests.ManifestHead:
        found = self.store._kept.get(Keys.of_user(USER).manifest(name))
        assert found is not None, "a manifest that is named is gone"
        return manifests.decode_head(name, found.content)

    # -- what happens -------------------------------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        self.gateways = [vault_on(GatedObjects(self), self.clock, keep=2) for _ in range(2)]
        happenings = {
            self.let_go: 400,
            self.pass_time: 120,
            self.begin_push: 100,
            self.begin_collect: 50,
            self.begin_branch: 8,
            self.begin_forget: 6,
            self.begin_put_back: 8,
            self.cancel: 3,
            self.start_again: 3,
        }
        for _ in range(steps):
            happening = self.rng.choices(list(happenings), list(happenings.values()))[0]
            if len(self.at_work) < AT_ONCE or not happening.__name__.startswith("begin"):
                happening()
            await self.settle()
        while self.at_work:
            for request in self.waiting:
                request.go.set_result("ok")
            await self.settle()
        await self.check_trees()

    async def settle(self) -> None:
        """Let everybody go on until all wait: for the store, or for nothing."""
        await asyncio.sleep(0.001)
        for task in [task for task in self.at_work if task.done()]:
            del self.at_work[task]
            task.result()

    def begin(self, what: str, work: Awaitable[None], session_id: str = "") -> None:
        async def operation() -> None:
            try:
                await work
                self.seen[what] += 1
            except EXPECTED as error:
                self.seen[f"{what} failed"] += 1
                self.seen[f"{what}: {str(error)[:19]}"] += 1

        self.at_work[asyncio.create_task(operation(), name=what)] = session_id

    def let_go(self) -> None:
        if self.waiting:
            request = self.rng.choice([self.waiting[0], self.rng.choice(self.waiting)])
            if not request.go.done():
                request.go.set_result(self.rng.choices(["ok", "away", "lost"], [98, 1, 1])[0])

    def pass_time(self) -> None:
        """As much as no request is kept waiting for too long."""
        oldest = min((request.since for request in self.waiting), default=-DAY)
        longest = DAY * 1.1 if not self.waiting else max(0.0, oldest + SLOWEST - self.clock.seconds)
        self.clock.seconds += self.rng.choice([longest, self.rng.uniform(0, longest)])

    def gateway(self) -> SnapshotService:
        return self.rng.choice(self.gateways)

    def begin_push(self) -> None:
        session_id = f"s{self.rng.randrange(3)}"
        session = self.sessions.setdefault(session_id, MemorySession(session_id))
        if session_id in self.at_work.values():
            return
        # Few contents, which come and go: what is about to be removed is wanted again.
        for _ in range(self.rng.randint(0, 3)):
            content = b"content %d" % self.rng.randrange(6)
            session.roots.files[b"workspace/%d" % self.rng.randrange(3)] = content
        if self.rng.random() < 0.3:
            session.roots.files.clear()
        vault = self.gateway()

        async def work() -> None:
            pushed = await push(vault, session)
            self.trees[pushed.generation.manifest] = session.entries()
            self.seen["unchanged" if not pushed.new else "reused" if pushed.chunks_reused else "sent"] += 1

        self.begin("push", work(), session_id)

    def begin_collect(self) -> None:
        async def work() -> None:
            found = await vault.collect()
            self.seen["removed"] += found.removed
            assert not found.problem or "another writer" in found.problem

        vault = self.gateway()
        self.begin("collect", work())

    def begin_branch(self) -> None:
        origin, new = f"s{self.rng.randrange(3)}", f"b{self.rng.randrange(3)}"

        async def work() -> None:
            number = self.rng.choice((await vault.pointer(USER, origin)).generations).number
            await vault.branch(USER, origin, number, new)

        vault = self.gateway()
        self.begin("branch", work())

    def begin_forget(self) -> None:
        session_id = self.rng.choice(["s0", "s1", "s2", "b0", "b1", "b2"])
        self.begin("forget", self.gateway().forget(USER, session_id))

    def begin_put_back(self) -> None:
        session_id = f"s{self.rng.randrange(3)}"

        async def work() -> None:
            number = self.rng.choice((await vault.pointer(USER, session_id)).generations).number
            await vault.put_back(USER, session_id, number)
            if self.rng.random() < 0.8:
                for generation in (await vault.pointer(USER, session_id)).generations:
                    if generation.pinned:
                        await vault.release(USER, session_id, generation.number)

        vault = self.gateway()
        self.begin("put back", work())

    def cancel(self) -> None:
        if self.at_work:
            self.rng.choice(list(self.at_work)).cancel()

    def start_again(self) -> None:
        """A gateway that knows nothing takes the place of one that knew too much."""
        self.gateways[self.rng.randrange(2)] = vault_on(GatedObjects(self), self.clock, keep=2)

    # -- at the end ---------------------------------------------------------------------------------------------------

    async def check_trees(self) -> None:
        vault = vault_on(self.store, self.clock)
        for session_id in ("s0", "s1", "s2", "b0", "b1", "b2"):
            with suppress(NoSuchSnapshot):
                assert not await problems(vault, session_id)
                for generation in (await vault.pointer(USER, session_id)).generations:
                    tree = (await vault.tree(USER, session_id, generation.number))[1]
                    assert tree.entries == self.trees.get(generation.manifest, tree.entries)


async def simulate(seed: int, steps: int) -> Counter[str]:
    """Raises AssertionError if anything named was ever missing. What happened."""
    with pytest.MonkeyPatch.context() as patch:
        names = Random(seed)
        patch.setattr(manifests, "MAX_DEPTH", 2)
        patch.setattr(secrets, "token_bytes", names.randbytes)
        patch.setattr(secrets, "token_hex", lambda size: names.randbytes(size).hex())
        world = World(Random(seed))
        try:
            await world.run(steps)
        finally:
            for task in world.at_work:
                task.cancel()
            await asyncio.gather(*world.at_work, return_exceptions=True)
        return world.seen


@pytest.mark.soak
async def test_nothing_that_is_named_is_ever_gone() -> None:
    seen: Counter[str] = Counter()
    worlds, steps = sized(5, 150), sized(1500, 3000)
    for seed in range(worlds):
        seen += await simulate(seed, steps)
    for state in ("removed", "reused", "sent", "unchanged", "branch", "put back", "forget", "push failed"):
        assert seen[state] > 0, state
    assert seen["push: it took so long that"[:25]] > 0
    report(f"collect: {worlds} worlds, {seen['push']} syncs, {seen['removed']} removed, 0 missing")
