"""A bridge may say anything: nothing that it says makes a generation that is not whole, or touches what is kept."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from sandbox.ports.tree import TreeFailed
from sandbox.protocol.chunk_frames import pack
from sandbox.protocol.entry import Chunk, Entry, Frame, Kind, chunk_id
from sandbox.protocol.tree import MAX_OFFERS, MAX_SKIPPED, Batch, Offer, ScanAsk, ScanDone, TreeLimits
from sandbox.providers.memory.tree import MemoryScan, MemoryTree
from sync.errors import SyncFailed
from sync.objects.memory import MemoryObjects
from sync.snapshots.push import SCANS
from sync.snapshots.push import push as push_once
from sync.snapshots.service import SnapshotService
from tests.support.keeping import USER, MemorySession, problems, push, push_tree, restored_entries, vault_on

Lie = Callable[[Batch | ScanDone], Batch | ScanDone]
FrameLie = Callable[[list[Frame]], list[Frame]]
FILE = Entry(b"workspace/f", Kind.FILE, 0o644, 0)


def honest(frames: list[Frame]) -> list[Frame]:
    return frames


class HostileTree(MemoryTree):
    """A tree that tells the truth, but for `lie` and `frame_lie`, and that knows no limits."""

    def __init__(self, session: MemorySession, lie: Lie = lambda told: told, frame_lie: FrameLie = honest) -> None:
        super().__init__(lambda: session.roots)
        self._lie, self._frame_lie = lie, frame_lie

    @asynccontextmanager
    async def scan(self, asked: ScanAsk) -> AsyncIterator["HostileScan"]:  # type: ignore[override]
        async with super().scan(msgspec.structs.replace(asked, limits=TreeLimits())) as scan:
            yield HostileScan(scan, self._lie, self._frame_lie)


class HostileScan:
    def __init__(self, scan: MemoryScan, lie: Lie, frame_lie: FrameLie) -> None:
        self._scan, self._lie, self._frame_lie = scan, lie, frame_lie
        self._offers = 0
        self.lived_at = 0.0

    async def next(self) -> Batch | ScanDone:
        told = await self._scan.next()
        self._offers = len(told.offers) if isinstance(told, Batch) else 0
        return self._lie(told)

    async def fetch(self, wanted: Sequence[int]) -> AsyncIterator[Frame]:
        frames = [frame async for frame in self._scan.fetch([number for number in wanted if number < self._offers])]
        for frame in self._frame_lie(frames) if frames else ():
            yield frame

    async def remember(self, token: str) -> None:
        await self._scan.remember(token)


async def kept_session() -> tuple[SnapshotService, MemorySession]:
    """A session with a generation, and a change that is not kept yet."""
    vault, session = vault_on(), MemorySession()
    session.roots.files |= {b"workspace/old": b"old content", b"workspace/gone": b"x"}
    await push(vault, session)
    session.roots.files[b"workspace/new"] = b"new content" * 100
    del session.roots.files[b"workspace/gone"]
    return vault, session


async def check_refused(lie: Lie = lambda told: told, frame_lie: FrameLie = honest) -> None:
    vault, session = await kept_session()
    before = (await vault.pointer(USER, "s")).generations
    with pytest.raises(SyncFailed):
        await push_tree(vault, HostileTree(session, lie, frame_lie))
    assert (await vault.pointer(USER, "s")).generations == before
    assert not await problems(vault)
    await push(vault, session)
    assert await restored_entries(vault, session) == session.entries()
    assert not await problems(vault)


def first_chunk(frame: Frame, chunk: Chunk, data: bytes | None = None) -> Frame:
    return Frame((chunk, *frame.chunks[1:]), frame.data if data is None else data)


FRAME_LIES: dict[str, FrameLie] = {
    "other content": lambda frames: [pack([(frames[0].chunks[0], b"!" * frames[0].chunks[0].size)])],
    "a flipped bit": lambda frames: [Frame(frames[0].chunks, frames[0].data[:-1] + bytes([frames[0].data[-1] ^ 1]))],
    "a cut frame": lambda frames: [Frame(frames[0].chunks, frames[0].data[:-1])],
    "more after the frame": lambda frames: [Frame(frames[0].chunks, frames[0].data + b"more")],
    "no data": lambda frames: [Frame(frames[0].chunks, b"")],
    "no chunks": lambda frames: [*frames, Frame((), b"")],
    "nothing": lambda frames: [],
    "the same twice": lambda frames: [*frames, *frames],
    "what nobody asked for": lambda frames: [*frames, pack([(Chunk(chunk_id(b"spam"), 4), b"spam")])],
    "another size": lambda frames: [first_chunk(frames[0], Chunk(frames[0].chunks[0].id, 1))],
    "another name": lambda frames: [first_chunk(frames[0], Chunk(b"x" * 32, frames[0].chunks[0].size))],
    "a short name": lambda frames: [first_chunk(frames[0], Chunk(b"x", frames[0].chunks[0].size))],
    "a hole": lambda frames: [first_chunk(frames[0], Chunk(b"", frames[0].chunks[0].size))],
}


@pytest.mark.parametrize("name", FRAME_LIES)
async def test_content_that_is_not_what_it_should_be_is_not_kept(name: str) -> None:
    await check_refused(frame_lie=FRAME_LIES[name])


def in_batches(**members: object) -> Lie:
    """Every batch has these as well."""

    def lie(told: Batch | ScanDone) -> Batch | ScanDone:
        if isinstance(told, ScanDone):
            return told
        return msgspec.structs.replace(told, **{k: (*getattr(told, k), *v) for k, v in members.items()})  # type: ignore[misc]

    return lie


def at_the_end(**members: object) -> Lie:
    return lambda told: msgspec.structs.replace(told, **members) if isinstance(told, ScanDone) else told


def entry(**members: object) -> Lie:
    return in_batches(entries=(msgspec.structs.replace(FILE, **members),))


LIES: dict[str, Lie] = {
    "a path outside": entry(path=b"etc/passwd"),
    "an absolute path": entry(path=b"/workspace/f"),
    "a path upwards": entry(path=b"workspace/../../f"),
    "a path with NUL": entry(path=b"workspace/a\0b"),
    "a long name": entry(path=b"workspace/" + b"n" * 256),
    "a deep path": entry(path=b"workspace" + b"/d" * 70),
    "a root": entry(path=b"workspace/"),
    "setuid": entry(mode=0o4755),
    "a negative mode": entry(mode=-1),
    "a device": entry(kind=7),
    "a size without content": entry(size=5),
    "a negative size": entry(size=-1),
    "a huge hole": entry(size=1 << 60, chunks=(Chunk(b"", 1 << 60),)),
    "a symlink to nothing": entry(kind=Kind.SYMLINK),
    "content nobody has": entry(size=5, chunks=(Chunk(b"x" * 32, 5),)),
    "old content with another size": entry(size=2, chunks=(Chunk(chunk_id(b"old content"), 2),)),
    "a removed path outside": in_batches(removed=(b"../x",)),
    "an offer never sent": in_batches(offers=(Offer(b"y" * 32, 10),)),
    "too many offers": in_batches(
        offers=tuple(Offer(number.to_bytes(32, "big"), 1) for number in range(MAX_OFFERS + 1))
    ),
    "another base": at_the_end(base="0" * 64),
    "negative files": at_the_end(files=-1),
    "negative bytes": at_the_end(total_bytes=-1),
    "negative skips": at_the_end(skipped_count=-1),
    "a skipped path outside": at_the_end(skipped=(b"/x",)),
    "too much skipped": at_the_end(skipped=(b"workspace/s",) * (MAX_SKIPPED + 1)),
    "more files than allowed": at_the_end(files=1 << 40),
    "more bytes than allowed": at_the_end(total_bytes=1 << 50),
}


@pytest.mark.parametrize("name", LIES)
async def test_what_cannot_be_is_not_kept(name: str) -> None:
    await check_refused(lie=LIES[name])


@pytest.mark.parametrize("restless", [1, 2, 1000])
async def test_a_tree_that_moved_while_it_was_listed_is_scanned_again_and_kept_in_the_end(restless: int) -> None:
    vault, session = await kept_session()
    scans = 0

    def lie(told: Batch | ScanDone) -> Batch | ScanDone:
        nonlocal scans
        if isinstance(told, Batch):
            return told
        scans += 1
        return msgspec.structs.replace(told, moved=scans <= restless)

    uploaded: list[None] = []
    pushed = await vault.push(USER, "s", HostileTree(session, lie), ScanAsk(), lambda: uploaded.append(None))
    assert scans == min(restless + 1, SCANS)
    assert (pushed.generation.number, len(uploaded)) == (2, 1)
    assert await restored_entries(vault, session) == session.entries()


async def test_an_offer_that_comes_again_is_asked_for_once() -> None:
    vault, session = await kept_session()
    again: list[Offer] = []

    def lie(told: Batch | ScanDone) -> Batch | ScanDone:
        if isinstance(told, ScanDone):
            return told
        again.extend(told.offers)
        return msgspec.structs.replace(told, offers=(*told.offers, *again))

    pushed = await push_tree(vault, HostileTree(session, lie))
    assert pushed.chunks_sent == 1
    assert await restored_entries(vault, session) == session.entries()


async def test_a_first_tree_that_is_none_is_not_kept() -> None:
    vault, session = vault_on(), MemorySession()
    session.roots.files[b"workspace/f"] = b"x"
    with pytest.raises(SyncFailed, match="no directory"):
        await push_tree(vault, HostileTree(session, entry(path=b"workspace/nowhere/f")))
    assert await vault.newest(USER, "s") is None


async def test_a_difference_that_makes_no_tree_is_passed_over_when_it_is_restored() -> None:
    """Only the whole tree shows it, which is not read at each sync; so it is found when it is put back."""
    vault, session = await kept_session()
    kept = await restored_entries(vault, session)
    await push_tree(vault, HostileTree(session, entry(path=b"workspace/nowhere/f")))
    other = MemorySession()
    restored = await vault.restore(USER, "s", other.tree, aside=False, told=lambda _: None)
    assert restored.generation.number == 1
    assert restored.degraded is not None
    assert "no directory" in restored.degraded
    assert other.entries() == kept
    assert (await push(vault, session)).new
    assert await restored_entries(vault, session) == session.entries()


async def test_the_gateways_own_bounds_hold_also_when_the_bridge_has_none() -> None:
    shelf, session = vault_on().shelf(USER), MemorySession()
    many = in_batches(entries=tuple(msgspec.structs.replace(FILE, path=b"agent/%d" % n) for n in range(20)))
    session.roots.files[b"workspace/f"] = b"x" * 1000
    for lie, limits in ((many, TreeLimits(files=10)), (lambda told: told, TreeLimits(total_bytes=999))):
        with pytest.raises(SyncFailed, match="HOLDFAST_SYNC_MAX") as caught:
            await push_once(shelf, "s", HostileTree(session, lie), ScanAsk(limits=limits))
        assert caught.value.permanent


async def test_holes_do_not_count_against_the_bytes_a_tree_may_have() -> None:
    shelf, session = vault_on().shelf(USER), MemorySession()
    hole = entry(path=b"workspace/sparse", size=1 << 40, chunks=(Chunk(b"", 1 << 40),))
    session.roots.files[b"workspace/f"] = b"x"
    pushed = await push_once(shelf, "s", HostileTree(session, hole), ScanAsk(limits=TreeLimits(total_bytes=1000)))
    assert (await shelf.tree(pushed.generation.manifest)).entries[b"workspace/sparse"].size == 1 << 40


@pytest.mark.parametrize(("code", "permanent"), [("too_large", True), ("too_many", True), ("failed", False)])
@pytest.mark.parametrize("step", ["scan", "next", "fetch"])
async def test_a_scan_that_fails_keeps_nothing(step: str, code: str, permanent: bool) -> None:
    vault, session = await kept_session()
    session.roots.failures[step] = [TreeFailed(code, "said so")]
    with pytest.raises(SyncFailed, match="said so") as caught:
        await push(vault, session)
    assert caught.value.permanent == permanent
    assert (await vault.pointer(USER, "s")).newest.number == 1


async def test_a_bridge_that_does_not_remember_costs_nothing_but_a_longer_tale() -> None:
    vault, session = await kept_session()
    session.roots.failures["remember"] = [TreeFailed("failed", "gone")]
    assert (await push(vault, session)).generation.number == 2
    again = await push(vault, session)
    assert not again.new
    assert again.generation.number == 2
    assert session.roots.known is not None
    assert session.roots.known[0] == again.generation.manifest


async def test_store_and_scan_stay_apart_when_the_store_is_empty() -> None:
    """The bridge says it knows the base, and the store has never seen the session: all is told and all is sent."""
    session = MemorySession()
    session.roots.files[b"workspace/f"] = b"x"
    await push(vault_on(MemoryObjects()), session)
    other = vault_on(MemoryObjects())
    assert (await push(other, session)).generation.number == 1
    assert await restored_entries(other, session) == session.entries()
