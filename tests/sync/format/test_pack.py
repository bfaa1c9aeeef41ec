"""Packs: what is put in is found again, and whatever happens to the bytes is noticed."""

from collections.abc import Sequence
from contextlib import suppress
from random import Random

import msgspec
import pytest
import zstandard
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.chunk_frames import pack as pack_frame
from sandbox.protocol.chunk_frames import unpack
from sandbox.protocol.entry import BadEntry, Chunk, Frame, chunk_id
from sync.errors import Damaged
from sync.format.pack import (
    FOOTER,
    HEAD,
    MAX_CHUNKS,
    MAX_INDEX,
    SALT,
    TAIL,
    TARGET_BYTES,
    PackBuilder,
    PackedFrame,
    index_length,
    inflate,
    read_frame,
    read_index,
)

NAME = "0" * 64
contents = st.lists(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=4), max_size=5)


def frame_of(*pieces: bytes) -> Frame:
    return pack_frame([(Chunk(chunk_id(piece), len(piece)), piece) for piece in pieces])


def sealed(frames: Sequence[Frame], salt: bytes = b"s" * SALT) -> tuple[str, bytes]:
    builder = PackBuilder(salt)
    for frame in frames:
        builder.add(frame)
    return builder.seal()


def read_back(content: bytes) -> list[list[bytes]]:
    """All that is in a pack, as whoever has nothing but its bytes reads it. Raises Damaged."""
    footer = content[-FOOTER:]
    length = index_length(NAME, footer)
    index = content[:-FOOTER][-length:] if length else b""
    found = []
    for packed in read_index(NAME, index, footer, len(content)):
        frame = read_frame(NAME, packed, content[packed.offset : packed.offset + packed.length])
        try:
            found.append([bytes(piece) for piece in unpack(frame)])
        except BadEntry as error:
            raise Damaged("a frame") from error
    return found


@given(contents)
def test_what_was_put_in_is_found_again(pieces: list[list[bytes]]) -> None:
    name, content = sealed([frame_of(*inside) for inside in pieces])
    assert read_back(content) == pieces
    assert name == blake3(content).hexdigest()


def test_the_same_content_with_another_salt_has_another_name() -> None:
    frames = [frame_of(b"a")]
    assert sealed(frames, b"1" * SALT)[0] != sealed(frames, b"2" * SALT)[0]
    assert sealed(frames)[0] == sealed(frames)[0]


def test_a_pack_is_full_when_it_is_large_or_has_many_chunks() -> None:
    large = [Frame((), b"x" * (TARGET_BYTES - 1 - len(HEAD) - SALT)), Frame((), b"x")]
    many = [Frame((Chunk(b"c" * 32, 1),) * (MAX_CHUNKS - 1), b"x"), frame_of(b"one more")]
    for frames in (large, many):
        builder, full = PackBuilder(b"s" * SALT), list[bool]()
        for frame in frames:
            builder.add(frame)
            full.append(builder.full)
        assert full == [False, True]


def test_a_sealed_pack_lets_go_of_what_it_held() -> None:
    builder = PackBuilder(b"s" * SALT)
    builder.add(frame_of(b"a"))
    builder.seal()
    assert b"".join(builder._parts) == b""
    assert len(builder.frames) == 1


def test_every_flipped_bit_and_every_cut_is_noticed_or_changes_nothing() -> None:
    pieces = [[b"first", b"second"], [b"third" * 10]]
    _, content = sealed([frame_of(*inside) for inside in pieces])
    noticed = 0
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            try:
                assert read_back(bytes(flipped)) == pieces
            except Damaged:
                noticed += 1
        with pytest.raises(Damaged):
            read_back(content[:place])
    assert noticed >= 8 * (len(content) - len(HEAD) - SALT - 4)  # zstd headers have a few bits that say nothing


@given(st.binary(max_size=300))
def test_what_is_no_pack_is_damaged_and_never_a_crash(content: bytes) -> None:
    with pytest.raises(Damaged):
        read_back(content)


def with_index(plain: bytes, *, size: int = 1000, level: int = 3) -> Sequence[PackedFrame]:
    """Read an index that has the right hash, whatever is in it."""
    index = zstandard.compress(plain, level)
    footer = len(index).to_bytes(4, "little") + blake3(index).digest(length=16) + TAIL
    assert index_length(NAME, footer) == len(index)
    return read_index(NAME, index, footer, size)


@pytest.mark.parametrize(
    "frames",
    [
        [(SALT, 10, [(b"i" * 32, 1)])],  # in the head
        [(100, 10_000, [(b"i" * 32, 1)])],  # beyond the end
        [(100, -10, [(b"i" * 32, 1)])],
        [(100, 0, [(b"i" * 32, 1)])],
        [(100, 10, [(b"short", 1)])],
        [(100, 10, [(b"i" * 32, -1)])],
        [(100, 10, [(b"", 5)])],  # a hole
        [(100, 10, [(b"i" * 32, "1")])],
        [(100, 10)],
        "frames",
    ],
)
def test_an_index_that_says_what_cannot_be_is_damaged(frames: object) -> None:
    with pytest.raises(Damaged, match=f"pack {NAME}"):
        with_index(msgspec.msgpack.encode([frames]))


@given(st.binary(max_size=100))
def test_an_index_of_anything_is_damaged_or_an_index(plain: bytes) -> None:
    with suppress(Damaged):
        assert all(frame.length > 0 for frame in with_index(plain))


def test_an_index_that_would_fill_the_memory_is_damaged() -> None:
    with pytest.raises(Damaged):
        with_index(bytes(MAX_INDEX + 1), size=1 << 30)
    with pytest.raises(zstandard.ZstdError):
        inflate(zstandard.ZstdCompressor(write_content_size=False).compress(b"it does not say its size"), 1 << 20)
    with pytest.raises(Damaged, match="no end"):
        index_length(NAME, (MAX_INDEX + 1).to_bytes(4, "little") + bytes(16) + TAIL)


def test_a_frame_that_is_cut_is_damaged() -> None:
    with pytest.raises(Damaged, match="shorter"):
        read_frame(NAME, PackedFrame(4, 10, ()), b"123")


def test_large_packs_come_back() -> None:
    rng = Random(1)
    pieces = [[rng.randbytes(100_000)] for _ in range(20)]
    assert read_back(sealed([frame_of(*inside) for inside in pieces])[1]) == pieces
