"""Whether a store keeps the promises that snapshots rest on. Asked once, at the start.

Some servers take a conditional write and ignore its condition: every racer wins, and the last one silently undoes the
others. Nothing would show until two gateways had written one session's pointer. So the store is tried, on a key of our
own below `probe/`, which is removed again.
"""

import asyncio
import secrets
from collections.abc import Awaitable
from contextlib import suppress

from sync.ports import Conflict, ObjectsRefused, ObjectStore, ObjectsUnavailable

CREATORS, REPLACERS = 20, 5  # SeaweedFS lets the losers of a race come again every second
CLEANING_SECONDS = 10.0


class PromiseBroken(ObjectsRefused):
    """The store answers, and does not do what snapshots need. The text says what, and what to do about it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the object store does not keep what snapshots need: {what}. Two writers could undo each other's work; use"
            " one that honours conditional writes, as Amazon S3, Cloudflare R2, MinIO and SeaweedFS do, or set"
            " HOLDFAST_OBJECTS_UNCHECKED=true and never run two gateways on it"
        )


async def probe(store: ObjectStore) -> None:
    """Returns if the store keeps its promises. Raises PromiseBroken, ObjectsRefused, ObjectsUnavailable."""
    base = f"probe/{secrets.token_hex(16)}"
    plain, created, replaced = used = [f"{base}/{name}/k" for name in ("plain", "created", "replaced")]
    try:
        etag = await store.create(replaced, secrets.token_bytes(64))
        checks = (
            _plain(store, plain),
            _race(store, created, CREATORS, None),
            _race(store, replaced, REPLACERS, etag),
        )
        for end in await asyncio.gather(*checks, return_exceptions=True):
            if isinstance(end, BaseException):
                raise end
    except Conflict as error:
        raise PromiseBroken("a write was refused whose condition held") from error
    finally:
        # What is left of a probe that failed is a few bytes; the reason why it failed is worth more than they are.
        with suppress(ObjectsUnavailable, ObjectsRefused, TimeoutError):
            async with asyncio.timeout(CLEANING_SECONDS):
                for key in used:
                    await store.delete(key)


async def _plain(store: ObjectStore, key: str) -> None:
    """One writer, step by step."""
    first, second = secrets.token_bytes(64), secrets.token_bytes(64)
    etag = await store.create(key, first)
    _expect(await _content(store, key) == first, "what was written is not what is read")
    _expect(await _refuses(store.create(key, second)), "an object was created where there was one")
    changed = await store.replace(key, second, etag)
    _expect(changed != etag, "a new content has the old etag")
    _expect(await _refuses(store.replace(key, first, etag)), "an object was replaced that had changed meanwhile")
    _expect(await _content(store, key) == second, "what was replaced is still read")
    _expect(await store.get_range(key, 8, 16) == second[8:24], "a range that is read is not that range")
    _expect([found.key async for found in store.list(f"{key[: key.rindex('/')]}/")] == [key], "a listing is not true")
    await store.delete(key)
    _expect(await store.get(key) is None, "what was deleted is still read")
    _expect(await _refuses(store.replace(key, first, changed)), "an object was replaced that was gone")


async def _race(store: ObjectStore, key: str, racers: int, etag: str | None) -> None:
    """Many write at once what only one may."""
    contents = [secrets.token_bytes(64) for _ in range(racers)]
    writes = [store.create(key, each) if etag is None else store.replace(key, each, etag) for each in contents]
    ends = await asyncio.gather(*writes, return_exceptions=True)
    won = [content for content, end in zip(contents, ends, strict=True) if isinstance(end, str)]
    for end in ends:
        # Who got no answer may have won, unless another did: R2 has no answer for most who write one key at once.
        lost = isinstance(end, Conflict) or (bool(won) and isinstance(end, ObjectsUnavailable))
        if isinstance(end, BaseException) and not lost:
            raise end
    doing = "create" if etag is None else "replace"
    _expect(len(won) == 1, f"of {racers} who raced to {doing} one object {len(won)} were told that they did")
    _expect(await _content(store, key) == won[0], "what is read is not what the winner of a race wrote")


async def _content(store: ObjectStore, key: str) -> bytes | None:
    got = await store.get(key)
    return None if got is None else got.content


async def _refuses(write: Awaitable[str]) -> bool:
    try:
        await write
    except Conflict:
        return True
    return False


def _expect(held: bool, otherwise: str) -> None:
    if not held:
        raise PromiseBroken(otherwise)
