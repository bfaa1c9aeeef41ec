"""The catalogue against a model: a dict of packs, of which it must never say more than is there."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.entry import Chunk
from sync.format.chunk_index import ChunkIndex
from sync.format.pack import PackedFrame

chunks = st.sampled_from([bytes([number]) * 32 for number in range(6)])
packs = st.sampled_from(["p1", "p2", "p3"])
steps = st.lists(st.tuples(packs, st.none() | st.lists(st.lists(chunks, max_size=3), max_size=2)), max_size=12)


@given(steps, st.sets(packs))
def test_it_finds_only_what_is_there_and_not_marked(
    done: list[tuple[str, list[list[bytes]] | None]], marked: set[str]
) -> None:
    catalogue = ChunkIndex()
    model: dict[str, list[PackedFrame]] = {}
    for pack, inside in done:
        if inside is None or pack in model:  # a pack's name is its content: the same name never holds anything else
            catalogue.drop(pack)
            model.pop(pack, None)
        if inside is not None:
            frames = [
                PackedFrame(number, 1, tuple(Chunk(chunk, 1) for chunk in row)) for number, row in enumerate(inside)
            ]
            catalogue.add(pack, frames)
            model[pack] = frames
    held = {chunk.id for frames in model.values() for frame in frames for chunk in frame.chunks}
    assert len(catalogue) <= len(held)
    for pack in ("p1", "p2", "p3"):
        assert (pack in catalogue) == (pack in model)
    for chunk in (bytes([number]) * 32 for number in range(6)):
        place = catalogue.find(chunk, marked)
        if place is not None:
            assert place.pack not in marked
            assert place.frame in model[place.pack]
            assert chunk in {inside.id for inside in place.frame.chunks}


def test_a_chunk_that_came_again_is_found_where_it_came_last() -> None:
    catalogue = ChunkIndex()
    frame = PackedFrame(0, 1, (Chunk(b"a" * 32, 1),))
    catalogue.add("old", [frame])
    catalogue.add("new", [frame])
    assert catalogue.find(b"a" * 32, {"old"}) == ("new", frame)
    catalogue.drop("old")
    assert catalogue.find(b"a" * 32, ()) == ("new", frame)
    catalogue.drop("new")
    assert catalogue.find(b"a" * 32, ()) is None
    catalogue.drop("never there")
