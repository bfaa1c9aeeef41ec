"""Objects as files: whole after any crash, one winner among processes, and nothing where it should not be."""

import asyncio
import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from sync.objects.files import HASHED_BYTES, STALE_SECONDS, FileObjects
from sync.ports import Conflict, ObjectsRefused, ObjectsUnavailable

WRITER = """
import asyncio, sys
from pathlib import Path
from sync.objects.files import FileObjects

async def main():
    async with FileObjects(Path(sys.argv[1])) as store:
        etag = (await store.get("pointer")).etag
        print("began", flush=True)
        number = 0
        while True:
            number += 1
            content = b"%09d" % number * 20000
            await store.put(f"packs/{number % 7}/{number % 3}", content)
            etag = await store.replace("pointer", content[:9000], etag)
            await store.delete(f"packs/{(number + 3) % 7}/{number % 3}")
            print(number, flush=True)

asyncio.run(main())
"""
COUNTER = """
import asyncio, json, sys
from pathlib import Path
from sync.objects.files import FileObjects
from sync.ports import Conflict

async def main():
    done = 0
    async with FileObjects(Path(sys.argv[1])) as store:
        sys.stdin.readline()
        while done < int(sys.argv[3]):
            got = await store.get("count")
            names = json.loads(got.content)
            try:
                await store.replace("count", json.dumps([*names, f"{sys.argv[2]}-{done}"]).encode(), got.etag)
            except Conflict:
                continue
            done += 1

asyncio.run(main())
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileObjects]:
    async with FileObjects(tmp_path / "objects") as store:
        yield store


def visible(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {"@lock"}


async def test_a_directory_of_objects_is_what_it_looks_like(store: FileObjects, tmp_path: Path) -> None:
    await store.put("a/b", b"content")
    assert (tmp_path / "objects" / "a" / "b").read_bytes() == b"content"
    assert visible(tmp_path / "objects") == {"a/b"}
    for path in (tmp_path / "objects", tmp_path / "objects" / "a", tmp_path / "objects" / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, "workspaces are nobody else's to read"


async def test_nothing_is_touched_before_it_is_opened(tmp_path: Path) -> None:
    FileObjects(tmp_path / "objects")
    assert list(tmp_path.iterdir()) == []


async def test_directories_go_with_their_last_object(store: FileObjects, tmp_path: Path) -> None:
    await store.put("a/b/c/d", b"")
    await store.put("a/e", b"")
    await store.delete("a/b/c/d")
    assert not (tmp_path / "objects" / "a" / "b").exists()
    await store.delete("a/e")
    assert not (tmp_path / "objects" / "a").exists()
    assert (tmp_path / "objects").exists()


async def test_puts_and_deletes_of_neighbours_do_not_lose_each_others_directories(store: FileObjects) -> None:
    async def come_and_go(number: int) -> None:
        for _ in range(20):
            await store.put(f"shared/{number}", b"x")
            await store.delete(f"shared/{number}")
        await store.put(f"shared/{number}", b"stays")

    await asyncio.gather(*map(come_and_go, range(6)))
    assert len([found async for found in store.list("shared/")]) == 6


async def test_the_same_small_content_has_the_same_etag_and_a_rewritten_large_one_another(store: FileObjects) -> None:
    small, large = b"s" * HASHED_BYTES, b"l" * (HASHED_BYTES + 1)
    assert await store.put("k", small) == await store.put("k", small)
    etags = {await store.put("k", large) for _ in range(50)}
    assert len(etags) == 50, "an inode may be used again and a tick of the clock is long"


async def test_a_key_cannot_be_an_object_and_a_directory(store: FileObjects) -> None:
    await store.put("a", b"")
    with pytest.raises(ObjectsRefused, match="HOLDFAST_OBJECTS"):
        await store.put("a/b", b"")
    await store.delete("a/b")
    await store.put("c/d", b"")
    with pytest.raises(ObjectsRefused):
        await store.put("c", b"")


async def test_links_and_strange_names_in_the_directory_are_no_objects(store: FileObjects, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "objects" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "objects" / "a b").write_bytes(b"")
    (tmp_path / "objects" / "loop").symlink_to("..")
    with pytest.raises(ObjectsRefused):
        await store.get("link")
    await store.put("k", b"")
    assert [found.key async for found in store.list("")] == ["k"]


async def test_a_failed_write_leaves_no_draft_behind(store: FileObjects, tmp_path: Path) -> None:
    await store.put("k", b"")
    with pytest.raises(Conflict):
        await store.create("k", b"x")
    with pytest.raises(Conflict):
        await store.replace("k", b"x", "other")
    assert list((tmp_path / "objects" / "@tmp").iterdir()) == []


async def test_drafts_of_dead_writers_are_removed_at_the_next_start_and_young_ones_are_not(tmp_path: Path) -> None:
    drafts = tmp_path / "objects" / "@tmp"
    drafts.mkdir(parents=True)
    (drafts / "old").write_bytes(b"")
    (drafts / "young").write_bytes(b"")
    long_ago = (drafts / "old").stat().st_mtime - STALE_SECONDS - 60
    os.utime(drafts / "old", (long_ago, long_ago))
    async with FileObjects(tmp_path / "objects"):
        assert [path.name for path in drafts.iterdir()] == ["young"]


async def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ObjectsRefused, match="HOLDFAST_OBJECTS"):
        async with FileObjects(tmp_path / "file" / "objects"):
            pass


async def test_a_full_disk_is_unavailable_and_changes_nothing(
    store: FileObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await store.put("k", b"before")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_room)
        with pytest.raises(ObjectsUnavailable, match="No space left"):
            await store.put("k", b"after")
    got = await store.get("k")
    assert got is not None
    assert got.content == b"before"
    assert visible(tmp_path / "objects") == {"k"}


@pytest.mark.parametrize("seed", range(10))
async def test_a_writer_killed_at_any_moment_leaves_whole_objects_only(tmp_path: Path, seed: int) -> None:
    root = tmp_path / "objects"
    async with FileObjects(root) as store:
        await store.put("pointer", b"%09d" % 0 * 1000)
        with subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"began\n"
            rounds = 3 + seed
            while int(writer.stdout.readline()) < rounds:
                pass
            await asyncio.sleep(Random(seed).uniform(0, 0.004))  # somewhere within a round
            writer.kill()
        got = await store.get("pointer")
        assert got is not None
        assert got.content == got.content[:9] * 1000
        assert int(got.content[:9]) >= rounds, "what was answered is there"
        found = [each async for each in store.list("")]
        assert {each.key for each in found} == visible(root) - {
            f"@tmp/{path.name}" for path in (root / "@tmp").iterdir()
        }
        for each in found:
            whole = await store.get(each.key)
            assert whole is not None
            assert whole.content == whole.content[:9] * (len(whole.content) // 9)
            assert len(whole.content) in (9000, 180000)
        await store.replace("pointer", b"next", got.etag)


async def test_of_racing_processes_each_replaces_what_it_has_seen(tmp_path: Path) -> None:
    each, processes = 40, 4
    async with FileObjects(tmp_path / "objects") as store:
        await store.put("count", b"[]")
        arguments = [sys.executable, "-c", COUNTER, str(tmp_path / "objects")]
        racers = [
            subprocess.Popen([*arguments, str(number), str(each)], stdin=subprocess.PIPE) for number in range(processes)
        ]
        for racer in racers:
            racer.communicate(b"go\n")
        assert [racer.returncode for racer in racers] == [0] * processes
        got = await store.get("count")
    assert got is not None
    names = json.loads(got.content)
    assert sorted(names) == sorted(f"{number}-{done}" for number in range(processes) for done in range(each))


async def test_a_directory_of_somebody_else_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "passwd").write_text("theirs")
    (theirs / "hosts").write_text("theirs")
    with pytest.raises(ObjectsRefused, match=r"\(hosts, passwd\): set HOLDFAST_OBJECTS"):
        async with FileObjects(theirs):
            pass
    assert sorted(each.name for each in theirs.iterdir()) == ["hosts", "passwd"]


async def test_an_empty_directory_ours_and_a_copy_from_a_bucket_are_taken(tmp_path: Path) -> None:
    fresh, used, copied = tmp_path / "fresh", tmp_path / "used", tmp_path / "copied"
    (fresh / "lost+found").mkdir(parents=True)  # the root of a new disk
    async with FileObjects(used) as store:
        await store.put("a/b", b"of an earlier version")
    (used / "README").write_text("an operator's own note")
    (copied / "v1" / "users").mkdir(parents=True)
    (copied / "notes").write_text("")
    for place in (fresh, used, copied):
        async with FileObjects(place) as store:
            await store.put("a/c", b"")
