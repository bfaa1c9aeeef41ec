"""Pointers: numbers only grow, what is pinned stays, and damage is noticed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync.errors import Damaged, NoSuchSnapshot
from sync.format.checksummed import seal
from sync.format.pointer import FORMAT, PINS, Generation, Pointer, decode, encode, first, follow, pin, put_back, release

KEEP = 3


def generation(number: int, files: int = 10) -> Generation:
    return Generation(number, f"{number:064x}", 100.0 + number, files, 1000)


def pointer_of(*counts: int) -> Pointer:
    """A session whose generations had so many files."""
    pointer = first("s", generation(1, counts[0]), "w1")
    for number, files in enumerate(counts[1:], 2):
        pointer = follow(pointer, generation(number, files), f"w{number}", KEEP)
    return pointer


def numbers(pointer: Pointer) -> list[int]:
    return [each.number for each in pointer.generations]


steps = st.lists(
    st.tuples(st.sampled_from(["follow", "begin", "put_back", "release"]), st.integers(0, 100), st.integers(0, 100)),
    max_size=25,
)


@given(steps, st.integers(1, 5))
def test_whatever_happens_numbers_grow_and_the_newest_and_the_pinned_stay(
    done: list[tuple[str, int, int]], keep: int
) -> None:
    pointer = first("s", generation(1), "w")
    manifests = {1: pointer.newest.manifest}
    highest = 1
    for what, files, which in done:
        chosen = pointer.generations[which % len(pointer.generations)]
        before = {each.number: each for each in pointer.generations}
        if what in ("follow", "begin"):
            pointer = follow(pointer, generation(highest + 1, files), "w", keep, begun_without=what == "begin")
            assert pointer.find(highest).pinned if what == "begin" else True
        elif what == "put_back":
            pointer = put_back(pointer, chosen.number, 5.0, "w", keep)
            assert pointer.newest.manifest == chosen.manifest
            assert before[highest].manifest in {each.manifest for each in pointer.generations if each.pinned}
        else:
            pointer = release(pointer, chosen.number, "w", keep)
        highest += what != "release"
        for each in pointer.generations:
            assert manifests.setdefault(each.number, each.manifest) == each.manifest
        assert pointer.newest.number == highest
        assert numbers(pointer) == sorted(set(numbers(pointer)))
        kept = {each.number for each in pointer.generations}
        assert {number for number, each in before.items() if each.pinned} - kept <= {chosen.number} & {
            chosen.number if what == "release" else -1
        }
        known = [*before, *([highest] if what != "release" else [])]
        assert set(known[-keep:]) <= kept
        assert all(each.pinned or each.number in known[-keep:] for each in pointer.generations)
        assert decode("s", encode(pointer)) == pointer


def test_the_generation_before_a_loss_is_pinned_until_it_is_released() -> None:
    pointer = pointer_of(100, 49, 50, 50, 50, 50)
    assert numbers(pointer) == [1, 4, 5, 6]
    assert pointer.generations[0].pinned == "generation 2 has 49 of its 100 files"
    assert numbers(release(pointer, 1, "w", KEEP)) == [4, 5, 6]


def test_what_a_tree_was_begun_without_is_pinned_however_many_files_that_has() -> None:
    pointer = follow(pointer_of(10), generation(2, 100), "w", KEEP, begun_without=True)
    for number in range(3, 9):
        pointer = follow(pointer, generation(number, 100), "w", KEEP)
    assert numbers(pointer) == [1, 6, 7, 8]
    assert pointer.generations[0].pinned == "generation 2 was begun without it"


def test_losing_half_of_the_files_pins_nothing() -> None:
    assert not any(each.pinned for each in pointer_of(100, 50, 25, 13).generations)


def test_a_reason_to_be_pinned_is_not_replaced_by_another() -> None:
    pointer = put_back(pointer_of(100, 1), 1, 5.0, "w", KEEP)
    assert pointer.find(2).pinned == "replaced by generation 1's tree"
    assert pointer.find(1).pinned.startswith("generation 2 has")
    again = follow(pointer, generation(4, 1), "w", KEEP)
    assert again.find(3).pinned.startswith("generation 4 has 1 of its 100")
    assert follow(release(again, 3, "w", 9), generation(5, 0), "w", 9).find(3).pinned == ""
    assert put_back(again, 2, 6.0, "w", KEEP).find(3).pinned.startswith("generation 4 has")
    pinned_newest = msgspec.structs.replace(again.newest, pinned="by hand")
    kept = msgspec.structs.replace(again, generations=(*again.generations[:-1], pinned_newest))
    assert follow(kept, generation(5, 0), "w", KEEP).find(4).pinned == "by hand"
    assert put_back(kept, 3, 6.0, "w", KEEP).find(4).pinned == "by hand"


def test_a_tree_that_is_put_back_is_a_new_generation_with_a_note() -> None:
    pointer = put_back(pointer_of(10, 10), 1, 77.0, "w9", KEEP)
    assert pointer.newest == msgspec.structs.replace(
        generation(1), number=3, at=77.0, note="restored from generation 1"
    )
    assert pointer.writer == "w9"


def test_what_was_found_damaged_is_pinned() -> None:
    pointer = pin(pointer_of(100, 1, 1), [1, 2, 9], "damaged", "w9")
    assert [each.pinned for each in pointer.generations] == ["generation 2 has 1 of its 100 files", "damaged", ""]
    assert pointer.writer == "w9"


def test_finding() -> None:
    pointer = pointer_of(10, 10)
    assert pointer.find(None) == pointer.newest == pointer.find(2)
    assert [each.number for each in pointer.older_first] == [2, 1]
    for missing in (0, 3, -1):
        with pytest.raises(NoSuchSnapshot, match=f"no generation {missing}"):
            pointer.find(missing)
    with pytest.raises(NoSuchSnapshot):
        release(pointer, 9, "w", KEEP)
    with pytest.raises(NoSuchSnapshot):
        put_back(pointer, 9, 1.0, "w", KEEP)


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    content = encode(first("s", generation(1), "w", "origin@3"))
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(Damaged, match="pointer of session s"):
                decode("s", bytes(flipped))
        with pytest.raises(Damaged):
            decode("s", content[:place])


def test_a_pointer_of_another_session_is_not_taken() -> None:
    with pytest.raises(Damaged, match="not its own"):
        decode("t", encode(pointer_of(1)))


@pytest.mark.parametrize("order", [(), (2, 1), (1, 1)])
def test_a_pointer_without_order_is_damaged(order: tuple[int, ...]) -> None:
    pointer = Pointer("s", tuple(generation(number) for number in order), "w")
    with pytest.raises(Damaged):
        decode("s", encode(pointer))


def test_a_pointer_of_a_newer_version_says_so() -> None:
    with pytest.raises(Damaged, match="newer version"):
        decode("s", encode(msgspec.structs.replace(pointer_of(1), format=FORMAT + 1)))


@pytest.mark.parametrize("inside", [b"", b"{}", b"[]", b'{"session":1}', b'{"x":' + b"[" * 100_000])
def test_what_is_no_pointer_is_damaged(inside: bytes) -> None:
    with pytest.raises(Damaged, match="cannot be read"):
        decode("s", seal(inside))


def test_pins_are_many_and_not_without_end() -> None:
    """A workspace that is emptied and filled again all day long: the pointer is written with every sync."""
    counts = [10, 0] * (PINS + 10)
    pointer = pointer_of(*counts)
    pinned = [each.number for each in pointer.generations if each.pinned]
    assert len(pinned) == PINS
    assert pinned[-1] == len(counts) - 1
    assert numbers(pointer) == sorted({*pinned, *range(len(counts) - KEEP + 1, len(counts) + 1)})
