"""Checks at the start whether a store keeps the promises that snapshots rest on.

Some servers take a conditional write and ignore its condition: every racer wins, and the last one silently undoes the
others. Nothing would show until two gateways had written one session's pointer. So the store is tried, on keys of our
own below `probe/`, which are removed again.

Some servers take one write a second to one key (Cloudflare R2) and answer 429 to the rest. So the second write comes
at once and alone. If it gets 429, a second passes between any two later writes to one key, and only a few race.
Racers never retry: it would be in vain, and would use up the retries that the gateway's own work needs.
"""

import asyncio
import secrets
from collections.abc import Awaitable
from contextlib import suppress

from sync.ports import Conflict, ObjectsRefused, ObjectStore, ObjectsUnavailable, TooManyRequests

CREATORS, REPLACERS = 20, 5  # SeaweedFS lets the losers of a race come again every second
FEW = 3  # racers where a key takes one write a second
ROUNDS = 3  # of a race whose winner got no answer
PAUSE_SECONDS = 1.1  # between two writes to one key, where that matters; between two rounds of a race
CLEANING_SECONDS = 10.0


class PromiseBroken(ObjectsRefused):
    """The store answers, but does not do what snapshots need. The text says what, and how to fix it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the object store does not do what snapshots need: {what}. Two writers could undo each other's work; use"
            " one that honours conditional writes, as Amazon S3, Cloudflare R2, MinIO and SeaweedFS do, or set"
            " HOLDFAST_OBJECTS_UNCHECKED=true and never run two gateways on it"
        )


async def probe(store: ObjectStore, bare: ObjectStore | None = None) -> None:
    """Returns if the store keeps its promises. `bare` is the same one without retries, for the races.
    Raises PromiseBroken, ObjectsRefused, ObjectsUnavailable."""
    attempt = _Probe(store, bare or store)
    try:
        await attempt.all()
    except Conflict as error:
        raise PromiseBroken("a write was refused although its condition held") from error
    finally:
        await attempt.clean()


class _Probe:
    def __init__(self, store: ObjectStore, bare: ObjectStore) -> None:
        self._store = store
        self._bare = bare
        self._base = f"probe/{secrets.token_hex(16)}"
        self._used: list[str] = []
        self._pause = 0.0  # before a second write to one key
        self._most = CREATORS

    async def all(self) -> None:
        key, content = self._key("plain"), secrets.token_bytes(64)
        etag = await self._store.create(key, content)
        _expect(await _content(self._store, key) == content, "a read does not return the bytes that were written")
        _expect(await self._refuses_at_once(key), "an object was created in place of an existing one")
        checks = (
            self._change(key, etag),
            self._delete(),
            self._races("created", CREATORS),
            self._races("replaced", REPLACERS),
        )
        for end in await asyncio.gather(*checks, return_exceptions=True):
            if isinstance(end, BaseException):
                raise end

    async def _refuses_at_once(self, key: str) -> bool:
        """Whether nothing can be created at `key`, which was written just now. Notes whether the server called that
        too soon."""
        content = secrets.token_bytes(64)
        try:
            return await _refuses(self._bare.create(key, content))
        except ObjectsUnavailable as error:
            if isinstance(error, TooManyRequests):
                self._pause, self._most = PAUSE_SECONDS, FEW
                await self._wait()
            return await _refuses(self._store.create(key, content))

    async def _change(self, key: str, etag: str) -> None:
        store, content = self._store, secrets.token_bytes(64)
        await self._wait()
        changed = await store.replace(key, content, etag)
        _expect(changed != etag, "new content has the old etag")
        await self._wait()
        stale = store.replace(key, secrets.token_bytes(64), etag)
        _expect(await _refuses(stale), "an object was replaced that had changed meanwhile")
        _expect(await _content(store, key) == content, "a read still returns the replaced content")
        _expect(await store.get_range(key, 8, 16) == content[8:24], "a read of a range returns other bytes")
        below = f"{key[: key.rindex('/')]}/"
        _expect([found.key async for found in store.list(below)] == [key], "a listing is wrong")

    async def _delete(self) -> None:
        store, key = self._store, self._key("deleted")
        etag = await store.create(key, secrets.token_bytes(64))
        await self._wait()
        await store.delete(key)
        _expect(await store.get(key) is None, "a read still returns a deleted object")
        await self._wait()
        gone = store.replace(key, secrets.token_bytes(64), etag)
        _expect(await _refuses(gone), "a deleted object was replaced")

    async def _races(self, what: str, racers: int) -> None:
        """Many writers try at once, and only one may succeed. A race proves nothing if its winner may be a writer
        without an answer."""
        for number in range(1, ROUNDS + 1):
            try:
                return await self._race(f"{what}/{number}", min(racers, self._most), what == "replaced")
            except ObjectsUnavailable:
                if number == ROUNDS:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)
        return None

    async def _race(self, name: str, racers: int, replaces: bool) -> None:
        store, bare, key = self._store, self._bare, self._key(name)
        contents = [secrets.token_bytes(64) for _ in range(racers)]
        if replaces:
            etag = await store.create(key, secrets.token_bytes(64))
            await self._wait()
            writes = [bare.replace(key, each, etag) for each in contents]
        else:
            writes = [bare.create(key, each) for each in contents]
        ends = await asyncio.gather(*writes, return_exceptions=True)
        won = [content for content, end in zip(contents, ends, strict=True) if isinstance(end, str)]
        for end in ends:
            # A writer without an answer has lost if another has won.
            lost = isinstance(end, Conflict) or (bool(won) and isinstance(end, ObjectsUnavailable))
            if isinstance(end, BaseException) and not lost:
                raise end
        doing = "replace" if replaces else "create"
        _expect(len(won) == 1, f"{racers} writers raced to {doing} one object, and {len(won)} of them succeeded")
        _expect(await _content(store, key) == won[0], "a read does not return what the winner of a race wrote")

    async def clean(self) -> None:
        """A failed probe leaves a few bytes; the reason for its failure matters more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLEANING_SECONDS):
                await asyncio.gather(*map(self._store.delete, self._used), return_exceptions=True)

    async def _wait(self) -> None:
        await asyncio.sleep(self._pause)

    def _key(self, name: str) -> str:
        self._used.append(f"{self._base}/{name}/k")
        return self._used[-1]


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
