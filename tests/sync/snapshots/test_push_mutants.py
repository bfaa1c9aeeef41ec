"""Broken builds, each of which one of the other tests must catch: a test that nothing can fail proves nothing."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from sandbox.protocol.entry import Frame
from sync.format import gc_marks
from sync.format.chunk_index import ChunkIndex
from sync.format.manifest import ChunkPlace
from sync.format.pack import PackedFrame
from sync.format.pointer import Pointer
from sync.snapshots import ingest, pack_reader, push, restore
from sync.snapshots.repository import Repository, Stopwatch
from tests.support.keeping import vault_on
from tests.support.watched_objects import Fault
from tests.sync.snapshots import test_gc, test_push_crashes, test_push_hostile, test_restore_damage

Check = Callable[[], Awaitable[object]]
Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    name: str
    breaks: Break
    check: Check


# -- the checks -------------------------------------------------------------------------------------------------------


async def crashes() -> None:
    for fault in Fault:
        await test_push_crashes.check_each_request("next sync", fault, lives=False)


async def hostile() -> None:
    for lie in test_push_hostile.FRAME_LIES.values():
        await test_push_hostile.check_refused(frame_lie=lie)


async def marked() -> None:
    await test_gc.check_content_about_to_go("marked")


async def being_removed() -> None:
    await test_gc.check_content_about_to_go("being removed")


async def one_look() -> None:
    await test_gc.test_what_nobody_names_goes_at_the_second_look_a_grace_after_the_first()


async def damage() -> None:
    """Each pack and manifest of a session, filled with something else."""
    for number in range(20):
        past = await test_restore_damage.Past.made(Random(1))
        stored = [key for key in sorted(await test_restore_damage.contents_of(past.store)) if "pointer" not in key]
        if number >= len(stored):
            return
        await test_restore_damage.damage(past.store, stored[number], "other", Random(number))
        vault, before = vault_on(past.store), await test_restore_damage.contents_of(past.store)
        outcome = await test_restore_damage.check_never_silent(past, vault, before, stored[number])
        await test_restore_damage.check_healed(past, vault, stored[number], noticed=outcome != "whole")


# -- the mutants ------------------------------------------------------------------------------------------------------


def pointer_before_packs(patch: pytest.MonkeyPatch) -> None:
    """Packs are sent when the pointer is there."""
    late: list[tuple[Repository, str, bytes]] = []
    swap = Repository.swap

    async def put_pack(self: Repository, pack: Any) -> tuple[str, int]:
        name, content = pack.seal()
        late.append((self, self.keys.pack(name), content))
        self.catalogue.add(name, pack.frames)
        self._seen[name] = self.now()
        return name, len(content)

    async def swap_first(self: Repository, pointer: Pointer, etag: str | None) -> str:
        swapped = await swap(self, pointer, etag)
        while late:
            owner, key, content = late.pop()
            await owner.store.put(key, content)
        return swapped

    patch.setattr(Repository, "put_pack", put_pack)
    patch.setattr(Repository, "swap", swap_first)


def pointer_before_manifest(patch: pytest.MonkeyPatch) -> None:
    swap, put_manifest = Repository.swap, Repository.put_manifest
    late: list[Callable[[], Awaitable[object]]] = []

    async def put_later(self: Repository, *args: Any) -> tuple[str, int]:
        store, kept = self.store, list[tuple[str, bytes]]()

        class Held:
            async def put(self, key: str, content: bytes) -> str:
                kept.append((key, content))
                return ""

        self.store = Held()  # type: ignore[assignment]
        try:
            result = await put_manifest(self, *args)
        finally:
            self.store = store
        late.append(lambda: store.put(*kept[0]))
        return result

    async def swap_first(self: Repository, pointer: Pointer, etag: str | None) -> str:
        swapped = await swap(self, pointer, etag)
        while late:
            await late.pop()()
        return swapped

    patch.setattr(Repository, "put_manifest", put_later)
    patch.setattr(Repository, "swap", swap_first)


def no_hash_on_receive(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ingest, "unpack", lambda frame: [])


def no_hash_on_restore(patch: pytest.MonkeyPatch) -> None:
    def unchecked(pack: str, frame: PackedFrame, data: bytes) -> tuple[Frame, list[memoryview]]:
        return Frame(frame.chunks, data), []

    patch.setattr(pack_reader, "_checked", unchecked)


def marked_is_used(patch: pytest.MonkeyPatch) -> None:
    def find(self: ChunkIndex, chunk: bytes, marked: object) -> ChunkPlace | None:
        return self._places.get(chunk)

    patch.setattr(ChunkIndex, "find", find)


def no_salt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(secrets, "token_bytes", bytes)


def one_mark(patch: pytest.MonkeyPatch) -> None:
    look = gc_marks.look
    patch.setattr(gc_marks, "look", lambda *args, **named: look(*args, **{**named, "grace": 0.0}))


def marks_go_with_the_scissors(patch: pytest.MonkeyPatch) -> None:
    """What is being removed has no mark any more."""
    look = gc_marks.look

    def forgetful(*args: Any, **named: Any) -> tuple[dict[str, gc_marks.Mark], list[str]]:
        after, doomed = look(*args, **named)
        return {name: mark for name, mark in after.items() if name not in doomed}, doomed

    patch.setattr(gc_marks, "look", forgetful)


def endless_patience(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stopwatch, "seconds", property(lambda self: 0.0))


def damage_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    async def distrust(self: Repository, damage: object) -> None:
        """Nothing."""

    patch.setattr(Repository, "distrust", distrust)


def built_on_damage(patch: pytest.MonkeyPatch) -> None:
    async def is_sound(self: object, newest: object, heeded: object) -> bool:
        return True

    patch.setattr(push._Attempt, "_is_sound", is_sound)


def silent_fallback(patch: pytest.MonkeyPatch) -> None:
    class Hushed(restore.RestoreResult):
        def __init__(self, generation: Any, degraded: object) -> None:
            super().__init__(generation, None)

    patch.setattr(restore, "RestoreResult", Hushed)


def deleted_when_damaged(patch: pytest.MonkeyPatch) -> None:
    distrust = Repository.distrust

    async def tidy(self: Repository, damage: Any) -> None:
        damage = list(damage)
        for error in damage:
            if error.pack is not None:
                await self.store.delete(self.keys.pack(error.pack))
        await distrust(self, damage)

    patch.setattr(Repository, "distrust", tidy)


MUTANTS = [
    Mutant("the pointer is swapped before the packs are stored", pointer_before_packs, crashes),
    Mutant("the pointer is swapped before the manifest is stored", pointer_before_manifest, crashes),
    Mutant("what the bridge sends is not hashed", no_hash_on_receive, hostile),
    Mutant("what is restored is not hashed", no_hash_on_restore, damage),
    Mutant("what is marked is used again", marked_is_used, marked),
    Mutant("content stored again has its old name", no_salt, being_removed),
    Mutant("one look is enough", one_mark, one_look),
    Mutant("what is being removed is not marked", marks_go_with_the_scissors, being_removed),
    Mutant("a sync may take as long as it likes", endless_patience, test_gc.check_a_very_slow_sync),
    Mutant("a branch may take as long as it likes", endless_patience, test_gc.check_a_very_slow_branch),
    Mutant("damage is not noted", damage_is_not_noted, damage),
    Mutant("a sync builds on damage", built_on_damage, damage),
    Mutant("a fallback is not told", silent_fallback, damage),
    Mutant("what is damaged is deleted", deleted_when_damaged, damage),
]


async def test_the_build_as_it_is_passes() -> None:
    """The other checks have a test of their own."""
    await damage()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
async def test_a_broken_build_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)) as caught:
        async with asyncio.timeout(30):
            await mutant.check()
    assert not isinstance(caught.value, TimeoutError | TypeError | AttributeError | NameError), "broken in another way"
