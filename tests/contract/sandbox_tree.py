"""What the tree of every Fleet promises. An adapter's test class gives the fixtures `fleet` and `hands`,
by which a test does to a sandbox's roots what a program in it would do."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pytest

from sandbox.ports.fleet import Fleet
from sandbox.ports.tree import LiveFile, LiveListing, SandboxTree, TreeFailed
from sandbox.protocol.chunk_frames import groups, pack, unpack
from sandbox.protocol.entry import Chunk, Entry, Frame, Kind
from sandbox.protocol.tree import Batch, ScanAsk, ScanDone, TreeLimits
from tests.contract.sandbox import attach, run_agent, spec
from tests.support.bridge import Owner
from tests.support.waiting import until


def _has_more(owner: Owner, changes: int) -> bool:
    return owner.changes > changes


class Hands(Protocol):
    """Of a program in the sandbox of `s1`. Paths begin with a root."""

    def write(self, path: bytes, content: bytes) -> None: ...
    def link(self, path: bytes, target: bytes) -> None: ...
    def make_directory(self, path: bytes) -> None: ...
    def remove(self, path: bytes) -> None: ...
    def files(self) -> dict[bytes, bytes]:
        """Every file that is there now, also of a sandbox that does not run."""
        ...

    def aside(self) -> list[dict[bytes, bytes]]:
        """The files of each tree that was kept beside the roots, the oldest first."""
        ...


@dataclass
class Told:
    """What a scan told."""

    entries: dict[bytes, Entry] = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)
    content: dict[bytes, bytes] = field(default_factory=dict)  # by chunk
    done: ScanDone | None = None

    def files(self) -> dict[bytes, bytes]:
        return {
            path: b"".join(self.content[chunk.id] for chunk in entry.chunks)
            for path, entry in self.entries.items()
            if entry.kind == Kind.FILE
        }


async def scan(
    tree: SandboxTree, *, base: str | None = None, remember: str | None = None, limits: TreeLimits | None = None
) -> Told:
    """Scan, and fetch everything that is offered."""
    told = Told()
    async with tree.scan(ScanAsk(base=base, limits=limits or TreeLimits())) as scan:
        while isinstance(batch := await scan.next(), Batch):
            told.entries |= {entry.path: entry for entry in batch.entries}
            told.removed |= set(batch.removed)
            async for frame in scan.fetch(range(len(batch.offers))):
                for chunk, piece in zip(frame.chunks, unpack(frame), strict=True):
                    told.content[chunk.id] = bytes(piece)
        told.done = batch
        if remember is not None:
            await scan.remember(remember)
    return told


def frames(content: Mapping[bytes, bytes], ids: Iterable[bytes]) -> Sequence[Frame]:
    return [pack(group) for group in groups((Chunk(id, len(content[id])), content[id]) for id in sorted(ids))]


async def restore(tree: SandboxTree, told: Told, token: str, *, aside: bool = False) -> int:
    """Put back what a scan told; return how many chunks were lacking."""
    async with tree.restore(token, aside=aside) as restore:
        lacking = await restore.plan(list(told.entries.values()))
        for frame in frames(told.content, lacking):
            await restore.put(frame)
        await restore.finish()
    return len(lacking)


async def _restore_with(tree: SandboxTree, told: Told, content: Sequence[Frame]) -> None:
    """Restore, whatever is lacking, with this content."""
    async with tree.restore("generation", aside=False) as restore:
        await restore.plan(list(told.entries.values()))
        for frame in content:
            await restore.put(frame)
        await restore.finish()


BIG = b"".join(b"%07d\n" % n for n in range(60_000))  # cut into several chunks
FILES = {
    b"workspace/a.txt": b"one",
    b"workspace/b.txt": b"two",
    b"workspace/deep/er/c": b"",
    b"workspace/big": BIG,
    b"workspace/\xff odd \n": b"odd",
    b"agent/.memory": b"kept too",
}


def write_all(hands: Hands) -> None:
    for path, content in FILES.items():
        hands.write(path, content)
    hands.link(b"workspace/link", b"../nowhere")
    hands.make_directory(b"workspace/empty")


class SandboxTreeContract:
    async def test_a_tree_of_a_sandbox_that_does_not_run_fails(self, fleet: Fleet) -> None:
        tree = fleet.sandbox("s1").tree()
        for attempt in (
            tree.greet(),
            tree.survey(()),
            tree.quiet(),
            tree.release(),
            scan(tree),
            fleet.sandbox("s1").files(b"workspace", b""),
        ):
            with pytest.raises(TreeFailed) as failed:
                await attempt
            assert failed.value.code == "absent"

    async def test_a_scan_tells_the_whole_tree(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        tree = fleet.sandbox("s1").tree()
        empty = await scan(tree)
        assert (empty.entries, empty.done) == ({}, ScanDone(None, 0, 0, 0))
        write_all(hands)
        told = await scan(tree)
        assert told.files() == FILES
        others = {path: (entry.kind, entry.target) for path, entry in told.entries.items() if path not in FILES}
        assert others == {
            b"workspace/link": (Kind.SYMLINK, b"../nowhere"),
            b"workspace/empty": (Kind.DIRECTORY, b""),
            b"workspace/deep": (Kind.DIRECTORY, b""),
            b"workspace/deep/er": (Kind.DIRECTORY, b""),
        }
        assert told.done is not None
        assert (told.done.base, told.done.files) == (None, len(FILES) + 1)
        assert told.done.total_bytes == sum(map(len, FILES.values()))

    async def test_after_remember_a_scan_tells_differences(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        tree = fleet.sandbox("s1").tree()
        write_all(hands)
        await scan(tree, remember="first")
        hands.write(b"workspace/a.txt", b"changed")
        hands.write(b"agent/new", b"new")
        hands.remove(b"workspace/b.txt")
        differences = await scan(tree, base="first", remember="second")
        assert differences.files() == {b"workspace/a.txt": b"changed", b"agent/new": b"new"}
        assert (differences.removed, differences.entries.keys() - {b"workspace/a.txt", b"agent/new"}) == (
            {b"workspace/b.txt"},
            set(),
        )
        assert differences.done is not None
        assert (differences.done.base, differences.done.files) == ("first", len(FILES) + 1)
        nothing = await scan(tree, base="second")
        assert (nothing.entries, nothing.removed) == ({}, set())
        other = await scan(tree, base="somebody else's")
        assert other.done is not None
        assert other.done.base is None
        assert other.entries.keys() == (await scan(tree)).entries.keys()

    async def test_what_is_remembered_outlives_the_sandbox(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        await scan(fleet.sandbox("s1").tree(), remember="kept")
        await fleet.sandbox("s1").stop()
        await fleet.start(spec(incarnation=2))
        tree = fleet.sandbox("s1").tree()
        survey = await tree.survey(())
        assert (survey.held, survey.known, survey.changed, survey.files) == (False, "kept", 0, len(FILES) + 1)
        hands.write(b"workspace/a.txt", b"longer than before")
        hands.remove(b"workspace/b.txt")
        survey = await tree.survey(())
        assert (survey.known, survey.changed, survey.files) == ("kept", 2, len(FILES))
        assert (await scan(tree, base="kept")).removed == {b"workspace/b.txt"}

    async def test_a_scan_that_is_left_in_the_middle_is_over(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        tree = fleet.sandbox("s1").tree()
        async with tree.scan(ScanAsk()) as left:
            assert isinstance(await left.next(), Batch)
        assert (await tree.survey(())).known is None
        assert (await scan(tree)).files() == FILES

    async def test_a_second_operation_waits_for_the_first(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        tree = fleet.sandbox("s1").tree()
        async with tree.scan(ScanAsk()) as first:
            assert isinstance(await first.next(), Batch)
            second = asyncio.create_task(scan(fleet.sandbox("s1").tree()))
            await asyncio.wait({second}, timeout=0.1)
            assert not second.done()
        assert (await second).files() == FILES

    async def test_what_is_restored_is_what_was_scanned(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        tree = fleet.sandbox("s1").tree()
        before = await scan(tree)
        hands.write(b"workspace/a.txt", b"spoilt")
        hands.write(b"workspace/unwanted", b"too much")
        hands.remove(b"agent/.memory")
        assert await restore(tree, before, "generation 1") > len(FILES) - 1
        assert hands.files() == FILES
        after = await scan(tree)
        assert after.entries == before.entries
        survey = await tree.survey(())
        assert (survey.known, survey.changed) == ("generation 1", 0)
        assert (await scan(tree, base="generation 1")).entries == {}
        assert hands.aside() == []
        assert await restore(tree, Told(), "generation 0") == 0
        assert hands.files() == {}

    async def test_no_program_starts_after_a_restore_that_it_would_not_see(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec(hold=True))
        sandbox, owner = fleet.sandbox("s1"), Owner()
        tree = sandbox.tree()
        write_all(hands)
        before = await scan(tree)
        hands.write(b"workspace/a.txt", b"spoilt")
        await restore(tree, before, "generation 1")
        if sandbox.mounts_roots:
            with pytest.raises(TreeFailed, match="start the sandbox again"):
                await tree.release()
            link = await attach(fleet, owner)
            link.start(b"too early")
            await until(lambda: owner.problems)
            await fleet.start(spec(incarnation=2, hold=True))
        survey = await tree.survey(())
        assert (survey.held, survey.known, survey.changed) == (True, "generation 1", 0)
        assert hands.files() == FILES
        await tree.release()
        later = Owner()
        await run_agent(await attach(fleet, later), later)
        assert owner.epochs == []

    async def test_a_restore_ends_the_freedom_of_programs_that_would_not_see_it(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        sandbox = fleet.sandbox("s1")
        await restore(sandbox.tree(), Told(), "nothing")
        assert (await sandbox.tree().survey(())).held is sandbox.mounts_roots

    async def test_a_live_file_may_have_any_name(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        sandbox = fleet.sandbox("s1")
        names = (b"\n", b"a\nb", b"a\n", b"\r\n", b" ?#%0a&", b"\xe2\x80\xa8", b"\x85\x1b")
        for name in names:
            path = b"line\nbreak/" + name
            hands.write(b"workspace/" + path, name)
            file = await sandbox.files(b"workspace", path)
            assert isinstance(file, LiveFile)
            assert b"".join([piece async for piece in file.content]) == name
        listing = await sandbox.files(b"workspace", b"line\nbreak")
        assert isinstance(listing, LiveListing)
        assert {entry.name for entry in listing.entries} == set(names)

    async def test_a_restore_tells_how_far_it_is(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        tree = fleet.sandbox("s1").tree()
        before = await scan(tree)
        seen = [(0, 0)]
        async with tree.restore("generation 1", aside=False) as begun:
            assert begun.progress() == (0, 0)
            for frame in frames(before.content, await begun.plan(list(before.entries.values()))):
                await begun.put(frame)
                seen.append(begun.progress())
            whole = len(FILES), sum(map(len, FILES.values()))
            await until(lambda: begun.progress() == whole)
            await begun.finish()
            assert begun.progress() == whole
        assert seen == sorted(seen)

    async def test_an_interrupted_restore_changes_nothing_and_is_gone_on_with(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        tree = fleet.sandbox("s1").tree()
        before = await scan(tree)
        hands.write(b"workspace/a.txt", b"newer")
        async with tree.restore("generation 1", aside=False) as begun:
            lacking = await begun.plan(list(before.entries.values()))
            big = {chunk.id for chunk in before.entries[b"workspace/big"].chunks}
            for frame in frames(before.content, lacking & big):
                await begun.put(frame)
            await until(lambda: begun.progress()[1] >= len(BIG))
        assert hands.files() == {**FILES, b"workspace/a.txt": b"newer"}
        assert await restore(tree, before, "generation 1") == len(lacking - big)
        assert hands.files() == FILES

    async def test_what_a_restore_replaces_is_kept_aside_on_request(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        tree = fleet.sandbox("s1").tree()
        hands.write(b"workspace/a.txt", b"old")
        hands.write(b"agent/b.txt", b"old")
        await restore(tree, Told(), "nothing", aside=True)
        assert (hands.files(), hands.aside()) == ({}, [{b"workspace/a.txt": b"old", b"agent/b.txt": b"old"}])

    async def test_a_restore_fails_whole_if_its_content_is_wrong_or_missing(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        tree = fleet.sandbox("s1").tree()
        before = await scan(tree)
        hands.write(b"workspace/a.txt", b"newer")
        now = hands.files()
        content = [frame.data for frame in frames({b"": b"bad"}, [b""])]
        with pytest.raises(TreeFailed) as failed:
            await _restore_with(
                tree, before, [Frame(f.chunks, content[0]) for f in frames(before.content, before.content)]
            )
        assert failed.value.code == "bad_chunk"
        with pytest.raises(TreeFailed, match="have not come"):
            await _restore_with(tree, before, [])
        with pytest.raises(TreeFailed, match="outside the roots"):
            async with tree.restore("evil", aside=False) as evil:
                await evil.plan([Entry(b"etc/passwd", Kind.FILE, 0o644, 0)])
        assert hands.files() == now

    async def test_a_held_agent_does_not_start_before_it_is_released(self, fleet: Fleet) -> None:
        await fleet.start(spec(hold=True))
        tree, owner = fleet.sandbox("s1").tree(), Owner()
        link = await attach(fleet, owner)
        assert owner.hellos[0].held
        link.start(b"too early")
        await until(lambda: owner.problems)
        assert (owner.problems, owner.epochs) == (["the agent waits for its workspace"], [])
        assert (await tree.survey(())).held
        await tree.release()
        await tree.release()
        assert not (await tree.survey(())).held
        await run_agent(link, owner)
        later = Owner()
        await attach(fleet, later)
        assert (later.hellos[0].held, later.hellos[0].alive) == (False, True)
        await fleet.start(spec(incarnation=2))
        assert not (await tree.survey(())).held

    async def test_nothing_is_restored_beneath_a_running_agent(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        owner = Owner()
        link = await attach(fleet, owner)
        await run_agent(link, owner)
        hands.write(b"workspace/a.txt", b"in use")
        with pytest.raises(TreeFailed) as failed:
            await restore(fleet.sandbox("s1").tree(), Told(), "nothing")
        assert failed.value.code == "busy"
        assert hands.files() == {b"workspace/a.txt": b"in use"}

    async def test_quiet_ends_the_agent_and_none_starts_before_it_is_released(self, fleet: Fleet) -> None:
        await fleet.start(spec())
        tree, owner = fleet.sandbox("s1").tree(), Owner()
        link = await attach(fleet, owner)
        await run_agent(link, owner)
        link.stop_agent()
        link.start(b"on its way")
        await tree.quiet()
        await tree.quiet()
        problems = len(owner.problems)
        link.start(b"too late")
        await until(lambda: len(owner.problems) > problems)
        assert owner.problems[-1] == "the agent waits for its workspace"
        await until(lambda: len(owner.exits) == len(owner.epochs))
        assert (await tree.survey(())).held
        assert owner.lost == []
        later = Owner()
        link = await attach(fleet, later)
        assert (later.hellos[0].held, later.hellos[0].alive) == (True, False)
        await tree.release()
        await run_agent(link, later, b"once more")
        await fleet.start(spec(incarnation=2))
        assert not (await tree.survey(())).held

    async def test_programs_end_and_are_let_go_in_the_middle_of_a_scan(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        tree, owner = fleet.sandbox("s1").tree(), Owner()
        link = await attach(fleet, owner)
        await run_agent(link, owner)
        async with tree.scan(ScanAsk()) as slow:
            assert isinstance(await slow.next(), Batch)
            async with asyncio.timeout(30):
                await tree.quiet()
                await until(lambda: len(owner.exits) == len(owner.epochs))
                await tree.release()
            await run_agent(link, owner, b"once more")

    async def test_a_sandbox_may_begin_empty_and_what_was_there_is_kept_aside(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        hands.write(b"workspace/a.txt", b"old")
        await fleet.start(spec(incarnation=2))
        assert hands.files() == {b"workspace/a.txt": b"old"}
        await fleet.start(spec(incarnation=3, empty=True))
        assert (hands.files(), hands.aside()) == ({}, [{b"workspace/a.txt": b"old"}])
        assert (await scan(fleet.sandbox("s1").tree())).entries == {}

    async def test_the_roots_are_kept_until_the_sandbox_is_destroyed(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        hands.write(b"workspace/a.txt", b"kept")
        await scan(fleet.sandbox("s1").tree(), remember="kept")
        await fleet.sandbox("s1").stop()
        assert hands.files() == {b"workspace/a.txt": b"kept"}
        await fleet.sandbox("s1").destroy()
        await fleet.start(spec())
        survey = await fleet.sandbox("s1").tree().survey(())
        assert (survey.known, survey.files) == (None, 0)

    async def test_a_write_is_noticed(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        owner = Owner()
        await attach(fleet, owner)
        for n in range(2):
            changes = owner.changes
            hands.write(b"workspace/new %d/file" % n, b"x")
            await until(partial(_has_more, owner, changes))

    async def test_live_files_are_read_one_at_a_time(self, fleet: Fleet, hands: Hands) -> None:
        await fleet.start(spec())
        write_all(hands)
        sandbox = fleet.sandbox("s1")
        listing = await sandbox.files(b"workspace", b"")
        assert isinstance(listing, LiveListing)
        assert {entry.name: (entry.kind, entry.size, entry.target) for entry in listing.entries} == {
            b"a.txt": ("file", 3, b""),
            b"b.txt": ("file", 3, b""),
            b"big": ("file", len(BIG), b""),
            b"deep": ("directory", 0, b""),
            b"empty": ("directory", 0, b""),
            b"link": ("symlink", 0, b"../nowhere"),
            b"\xff odd \n": ("file", 3, b""),
        }
        end = len(BIG) - 2
        for start, length, wanted in ((0, None, BIG), (7, 9, BIG[7:16]), (end, 9, BIG[end:]), (3, None, BIG[3:])):
            file = await sandbox.files(b"workspace", b"big", start=start, length=length)
            assert isinstance(file, LiveFile)
            assert (file.size, file.start, file.length) == (len(BIG), start, len(wanted))
            assert b"".join([piece async for piece in file.content]) == wanted
        for path, start in ((b"big", 0), (b"big", 10**9), (b"deep/er/c", 0), (b"\xff odd \n", 0)):
            file = await sandbox.files(b"workspace", path, start=start, length=0)
            assert isinstance(file, LiveFile)
            assert (file.size, file.length) == (len(FILES[b"workspace/" + path]), 0)
            await file.close()
        assert await sandbox.files(b"workspace", b"deep/nothing") is None
        assert await sandbox.files(b"neither", b"") is None
