"""By which ids containers are known: the store's, and those that the directory had before."""

import shutil
from pathlib import Path

from sandbox.providers.container.installation import Installation


class _Store:
    """Keeps the first id that is proposed, while it answers."""

    def __init__(self, kept: str | None = None) -> None:
        self.kept = kept
        self.answers = True

    async def propose(self, own: str) -> str | None:
        if not self.answers:
            return None
        self.kept = self.kept or own
        return self.kept


async def opened(directory: Path, store: _Store | None) -> Installation:
    found = Installation(directory, None if store is None else store.propose)
    found.open()
    await found.settle()
    return found


async def test_the_first_directorys_id_becomes_the_stores(tmp_path: Path) -> None:
    store = _Store()
    first = await opened(tmp_path, store)
    assert first.known == (first.home,) == (store.kept,)
    again = await opened(tmp_path, store)
    assert (again.home, again.known) == (first.home, first.known)


async def test_the_id_that_an_earlier_gateway_kept_in_the_directory_goes_into_the_store(tmp_path: Path) -> None:
    (tmp_path / "installation").write_text("0123456789abcdef")
    store = _Store()
    found = await opened(tmp_path, store)
    assert (found.current, found.home, store.kept) == ("0123456789abcdef",) * 3


async def test_a_second_directory_on_the_store_has_the_same_id_and_a_home_of_its_own(tmp_path: Path) -> None:
    store = _Store()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = await opened(tmp_path / "a", store), await opened(tmp_path / "b", store)
    assert first.current == second.current
    assert first.home != second.home
    assert second.known == (store.kept, second.home)


async def test_containers_of_the_time_before_are_known_when_the_directory_comes_to_another_store(
    tmp_path: Path,
) -> None:
    first = await opened(tmp_path, _Store("one"))
    assert first.known == ("one", first.home)
    second = await opened(tmp_path, _Store("two"))
    assert second.known == ("two", "one", first.home)
    assert (await opened(tmp_path, _Store("one"))).known == ("one", "two", first.home)


async def test_a_store_that_is_away_is_asked_again_and_meanwhile_what_was_known_holds(tmp_path: Path) -> None:
    store = _Store("one")
    store.answers = False
    found = await opened(tmp_path, store)
    known = [found.known]
    store.answers = True
    await found.settle()
    known.append(found.known)
    store.answers = False
    known.append((await opened(tmp_path, store)).known)
    known.append((await opened(tmp_path, None)).known)
    assert known == [(found.home,), *[("one", found.home)] * 3]


async def test_a_copy_of_a_directory_is_another_one(tmp_path: Path) -> None:
    store = _Store()
    (tmp_path / "a").mkdir()
    first = await opened(tmp_path / "a", store)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = await opened(tmp_path / "b", store)
    assert copy.home != first.home
    assert copy.known == (first.home, copy.home)
    assert (await opened(tmp_path / "b", store)).home == copy.home
    (tmp_path / "a").rename(tmp_path / "c")
    assert (await opened(tmp_path / "c", store)).home == first.home, "it was moved"


async def test_what_is_no_id_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "installation").write_text("../not an id")
    (tmp_path / "installations").write_text("{")
    found = await opened(tmp_path, _Store("not an id"))
    assert found.known == (found.home,)
    (tmp_path / "installations").write_text('["one", 7, "a b"]')
    assert (await opened(tmp_path, None)).known == ("one", found.home)
