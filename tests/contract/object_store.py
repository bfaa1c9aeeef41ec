"""What every ObjectStore promises. An adapter's test class inherits this and gives the `store` fixture."""

import asyncio
from random import Random

import pytest

from sync.ports import Conflict, Found, ObjectsRefused, ObjectStore

LARGE = 40 << 20
BAD_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/.",
    "a b",
    "a\0b",
    "a\nb",
    "é",
    "a\\b",
    "a%2fb",
    "@tmp/x",
]
BAD_KEYS += ["x" * 201, "/".join(["x" * 100] * 10)]


async def found_in(store: ObjectStore, prefix: str) -> dict[str, Found]:
    found = [each async for each in store.list(prefix)]
    assert len({each.key for each in found}) == len(found), "nothing is told twice"
    return {each.key: each for each in found}


async def race(*writes: object) -> tuple[list[str], list[BaseException]]:
    """The etags of those that won, and what became of the others."""
    ends = await asyncio.gather(*writes, return_exceptions=True)  # type: ignore[call-overload]
    return [end for end in ends if isinstance(end, str)], [end for end in ends if isinstance(end, BaseException)]


class ObjectStoreContract:
    racers = 20

    async def test_what_was_put_is_read_whole_and_with_its_etag(self, store: ObjectStore) -> None:
        for content in (b"", b"x", bytes(range(256)) * 1000):
            etag = await store.put("a/b.c/d-e_f", content)
            got = await store.get("a/b.c/d-e_f")
            assert got is not None
            assert (got.content, got.etag) == (content, etag)
            assert await store.head("a/b.c/d-e_f") == Found("a/b.c/d-e_f", len(content), etag)

    async def test_a_put_replaces_whatever_was_there_and_changes_the_etag(self, store: ObjectStore) -> None:
        etags = [await store.put("k", content) for content in (b"one", b"two", b"one and more")]
        assert len(set(etags)) == 3
        got = await store.get("k")
        assert got is not None
        assert (got.content, got.etag) == (b"one and more", etags[-1])

    async def test_what_is_not_there_is_none(self, store: ObjectStore) -> None:
        await store.put("a/b", b"x")
        for key in ("none", "a", "a/b/c", "a/bb"):
            assert await store.get(key) is None
            assert await store.head(key) is None
            assert await store.get_range(key, 0, 5) is None
            assert await store.get_range(key, 0, 0) is None

    async def test_a_range_ends_where_the_object_does(self, store: ObjectStore) -> None:
        await store.put("k", b"0123456789")
        assert await store.get_range("k", 0, 10) == b"0123456789"
        assert await store.get_range("k", 3, 4) == b"3456"
        assert await store.get_range("k", 8, 100) == b"89"
        assert await store.get_range("k", 10, 1) == b""
        assert await store.get_range("k", 99, 9) == b""
        assert await store.get_range("k", 5, 0) == b""
        await store.put("empty", b"")
        assert await store.get_range("empty", 0, 10) == b""

    async def test_a_listing_is_of_everything_below_the_prefix_and_nothing_beside_it(self, store: ObjectStore) -> None:
        sizes = {"a/1": 1, "a/2/3": 2, "a/2/4": 0, "ab/1": 3, "b": 4}
        etags = {key: await store.put(key, b"x" * size) for key, size in sizes.items()}
        assert await found_in(store, "") == {key: Found(key, size, etags[key]) for key, size in sizes.items()}
        assert set(await found_in(store, "a/")) == {"a/1", "a/2/3", "a/2/4"}
        assert set(await found_in(store, "a/2/")) == {"a/2/3", "a/2/4"}
        assert set(await found_in(store, "ab/")) == {"ab/1"}
        assert await found_in(store, "none/") == {}
        assert await found_in(store, "b/") == {}

    async def test_a_listing_of_2500_keys_is_complete(self, store: ObjectStore) -> None:
        keys = [f"many/{number:05}" for number in range(2500)]
        for begin in range(0, len(keys), 50):
            await asyncio.gather(*(store.put(key, b"") for key in keys[begin : begin + 50]))
        assert sorted(await found_in(store, "many/")) == keys

    async def test_what_was_deleted_is_gone_and_deleting_it_again_is_fine(self, store: ObjectStore) -> None:
        await store.put("a/b", b"x")
        await store.put("a/c", b"y")
        for _ in range(2):
            await store.delete("a/b")
        await store.delete("never/was")
        await store.delete("a")
        assert await store.get("a/b") is None
        assert set(await found_in(store, "")) == {"a/c"}
        await store.put("a/b", b"again")
        assert set(await found_in(store, "a/")) == {"a/b", "a/c"}

    async def test_only_what_is_not_there_is_created(self, store: ObjectStore) -> None:
        etag = await store.create("a/b", b"first")
        with pytest.raises(Conflict):
            await store.create("a/b", b"second")
        with pytest.raises(Conflict):
            await store.create("a/b", b"first")
        got = await store.get("a/b")
        assert got is not None
        assert (got.content, got.etag) == (b"first", etag)
        await store.delete("a/b")
        await store.create("a/b", b"third")

    async def test_only_what_has_the_etag_is_replaced(self, store: ObjectStore) -> None:
        first = await store.put("k", b"1")
        second = await store.replace("k", b"2", first)
        with pytest.raises(Conflict):
            await store.replace("k", b"3", first)
        third = await store.put("k", b"of somebody who did not look")
        with pytest.raises(Conflict):
            await store.replace("k", b"4", second)
        got = await store.get("k")
        assert got is not None
        assert (got.content, got.etag) == (b"of somebody who did not look", third)

    async def test_nothing_that_is_gone_is_replaced(self, store: ObjectStore) -> None:
        etag = await store.put("k", b"1")
        await store.delete("k")
        with pytest.raises(Conflict):
            await store.replace("k", b"2", etag)
        assert await store.get("k") is None

    async def test_of_those_who_race_to_create_one_wins(self, store: ObjectStore) -> None:
        contents = [b"writer %d" % number for number in range(self.racers)]
        won, lost = await race(*(store.create("raced", content) for content in contents))
        assert len(won) == 1
        assert all(isinstance(error, Conflict) for error in lost)
        got = await store.get("raced")
        assert got is not None
        assert got.etag == won[0]
        assert got.content in contents

    async def test_of_those_who_race_to_replace_one_wins_each_round(self, store: ObjectStore) -> None:
        etag = await store.put("raced", b"begin")
        for lap in range(3):
            racers = self.racers if lap == 0 else 2
            won, lost = await race(*(store.replace("raced", b"%d by %d" % (lap, n), etag) for n in range(racers)))
            assert len(won) == 1
            assert all(isinstance(error, Conflict) for error in lost)
            etag = won[0]
        got = await store.get("raced")
        assert got is not None
        assert got.etag == etag

    async def test_large_content_goes_up_and_comes_back(self, store: ObjectStore) -> None:
        content = Random(1).randbytes(LARGE)
        etag = await store.put("large", content)
        assert await store.head("large") == Found("large", LARGE, etag)
        assert await store.get_range("large", LARGE - 8, 100) == content[-8:]
        assert await store.get_range("large", 4 << 20, 4) == content[4 << 20 :][:4]
        got = await store.get("large")
        assert got is not None
        assert got.content == content
        assert await store.replace("large", b"small", etag) != etag

    async def test_a_bad_key_is_refused_by_every_method(self, store: ObjectStore) -> None:
        for key in BAD_KEYS:
            for call in (
                store.put(key, b""),
                store.create(key, b""),
                store.replace(key, b"", "etag"),
                store.get(key),
                store.get_range(key, 0, 1),
                store.head(key),
                store.delete(key),
            ):
                with pytest.raises(ObjectsRefused, match="no key"):
                    await call

    async def test_a_bad_prefix_is_refused(self, store: ObjectStore) -> None:
        for prefix in ("a", "/", "a//", "../", "a/../", "é/"):
            with pytest.raises(ObjectsRefused, match="no prefix"):
                await found_in(store, prefix)
