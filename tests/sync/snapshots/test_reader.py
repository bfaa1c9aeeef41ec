"""Reading a stored tree without a sandbox."""

import io
import os
import tarfile
from pathlib import Path
from random import Random

import pytest

from sandbox.protocol.entry import Entry, Kind
from sync.errors import Damaged
from sync.format.keys import Keys
from sync.objects.memory import MemoryObjects
from sync.snapshots.reader import SnapshotReader, tar, tar_head
from sync.snapshots.service import SnapshotService
from tests.support.keeping import USER, push_tree, vault_on
from tests.support.trees import ODD_NAMES, DirectoryTree, Gardener
from tests.support.watched_objects import WatchedObjects


async def kept(tmp_path: Path, store: WatchedObjects, seed: int = 1) -> tuple[DirectoryTree, SnapshotService]:
    tree = DirectoryTree(tmp_path / "home", tmp_path / "state")
    Gardener(tree.home, Random(seed)).edit(60)
    (tree.home / "workspace/empty").write_bytes(b"")
    with (tree.home / "workspace/sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(3 << 20)
        file.write(b"end")
        file.truncate(5 << 20)
    vault = vault_on(store)
    await push_tree(vault, tree)
    return tree, vault


async def read(contents: SnapshotReader, entry: Entry, start: int = 0, length: int | None = None) -> bytes:
    return b"".join([piece async for piece in contents.read(entry, start, length)])


async def test_every_file_reads_as_it_was_whole_and_in_parts(tmp_path: Path) -> None:
    tree, vault = await kept(tmp_path, WatchedObjects(MemoryObjects()))
    stored, rng = (await vault.tree(USER, "s", None))[1], Random(1)
    contents = vault.contents(USER, stored)
    for entry in stored.entries.values():
        if entry.kind != Kind.FILE:
            continue
        whole = Path(os.fsdecode(os.fsencode(tree.home) + b"/" + entry.path)).read_bytes()
        assert await read(contents, entry) == whole
        for _ in range(5):
            start, length = rng.randint(0, entry.size + 10), rng.randint(0, entry.size + 10)
            assert await read(contents, entry, start, length) == whole[start : start + length]
        assert await read(contents, entry, 0, 0) == b""


async def test_files_that_were_written_together_are_read_with_few_requests(tmp_path: Path) -> None:
    store = WatchedObjects(MemoryObjects())
    tree = DirectoryTree(tmp_path / "home", tmp_path / "state")
    for number in range(300):
        (tree.home / f"workspace/{number}").write_bytes(Random(number).randbytes(500))
    await push_tree(vault_on(store), tree)
    vault = vault_on(store)
    stored = (await vault.tree(USER, "s", None))[1]
    contents = vault.contents(USER, stored)
    before = len(store.requests)
    for entry in stored.entries.values():
        await read(contents, entry)
    assert len(store.since(before)) == 1
    again = len(store.requests)
    await vault.tree(USER, "s", None)
    assert len(store.since(again)) == 1  # the tree is in memory: only the pointer is read


async def test_a_tar_holds_the_tree(tmp_path: Path) -> None:
    tree, vault = await kept(tmp_path, WatchedObjects(MemoryObjects()))
    stored = (await vault.tree(USER, "s", None))[1]
    packed = b"".join([piece async for piece in vault.tar(USER, stored)])
    assert len(packed) % tarfile.BLOCKSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(packed), format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        members = {os.fsencode(member.name): member for member in archive}
        assert members.keys() == stored.entries.keys()
        for path, entry in stored.entries.items():
            member = members[path]
            assert (member.isreg(), member.isdir(), member.issym()) == tuple(entry.kind == kind for kind in Kind)
            assert member.mode == entry.mode
            assert os.fsencode(member.linkname) == entry.target
            if entry.kind == Kind.FILE:
                file = archive.extractfile(member)
                assert file is not None
                assert file.read() == (tree.home / os.fsdecode(path)).read_bytes()


@pytest.mark.parametrize(
    "mtime_ns", [0, 1, -1, -(10**9), -(10**9) - 1, 1_700_000_000_123_456_789, -(10**18) + 7, 10**18]
)
def test_a_time_is_written_to_the_nanosecond(mtime_ns: int) -> None:
    head = tar_head(Entry(b"workspace/f", Kind.FILE, 0o644, mtime_ns))
    with tarfile.open(fileobj=io.BytesIO(head + bytes(1024))) as archive:
        member = archive.next()
        assert member is not None
        told = member.pax_headers.get("mtime", str(member.mtime))
        seconds, _, fraction = told.partition(".")
        nanoseconds = int(fraction.ljust(9, "0")) * (-1 if seconds.startswith("-") else 1)
        assert int(seconds) * 10**9 + nanoseconds == mtime_ns


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_comes_out_as_it_was(name: bytes) -> None:
    head = tar_head(Entry(b"workspace/" + name, Kind.SYMLINK, 0o777, 5, 0, name))
    with tarfile.open(fileobj=io.BytesIO(head + bytes(1024)), errors="surrogateescape") as archive:
        member = archive.next()
        assert member is not None
        assert (os.fsencode(member.name), os.fsencode(member.linkname)) == (b"workspace/" + name, name)


async def test_damage_is_raised_and_the_tar_has_no_end(tmp_path: Path) -> None:
    store = WatchedObjects(MemoryObjects())
    _, vault = await kept(tmp_path, store)
    stored = (await vault.tree(USER, "s", None))[1]
    for place in {place.pack for place in stored.places.values()}:
        await store.put(Keys.of_user(USER).pack(place), b"")
    packed = bytearray()

    async def pack() -> None:
        async for piece in tar(vault.shelf(USER), stored):
            packed.extend(piece)

    with pytest.raises(Damaged):
        await pack()
    assert not packed.endswith(bytes(2 * tarfile.BLOCKSIZE))
