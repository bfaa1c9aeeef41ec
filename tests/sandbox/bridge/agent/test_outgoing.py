"""Lines for an agent's input: in which pieces they are written, and when there are too many."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.bridge.agent.outgoing import MAX_INJECTED, UNREAD_BYTES, OutgoingLines

PIECE = 64


def holding(*lines: bytes) -> OutgoingLines:
    outgoing = OutgoingLines(PIECE)
    for line in lines:
        outgoing.append(line)
    return outgoing


@given(st.lists(st.binary(max_size=2 * PIECE).filter(lambda line: b"\n" not in line)))
def test_all_lines_are_written_in_order_and_none_in_part(lines: list[bytes]) -> None:
    outgoing, pieces = holding(*lines), list[bytes]()
    assert outgoing.size == sum(map(len, lines))
    while outgoing:
        pieces.append(outgoing.cut())
    assert b"".join(pieces).split(b"\n")[:-1] == lines
    for piece in pieces:
        assert len(piece) <= PIECE or piece.count(b"\n") == 1
        assert piece.endswith(b"\n")
    assert (outgoing.cut(), outgoing.size) == (b"", 0)


@given(st.lists(st.binary(max_size=PIECE).filter(lambda line: b"\n" not in line)), st.integers(0, PIECE))
def test_what_has_room_beside_them_is_in_the_same_piece(lines: list[bytes], more: int) -> None:
    outgoing = holding(*lines)
    fits = outgoing.has_room_beside(more)
    outgoing.append(b"x" * more)
    outgoing.cut()
    assert not (fits and outgoing)


def test_nothing_is_injected_beyond_so_many_lines_or_bytes() -> None:
    assert holding(*[b""] * (MAX_INJECTED - 1)).has_room
    assert not holding(*[b""] * MAX_INJECTED).has_room
    assert holding(b"x" * (UNREAD_BYTES - 1)).has_room
    assert not holding(b"x" * UNREAD_BYTES).has_room


def test_answers_that_the_agent_leaves_unread_are_unheeded_until_it_reads() -> None:
    outgoing = holding(b"x" * (UNREAD_BYTES + 1))
    assert not outgoing.grown(outgoing.size), "these were no answers"
    unheeded, before = [outgoing.unheeded], outgoing.size
    outgoing.append(b"an answer")
    assert outgoing.grown(before)
    assert not outgoing.grown(0), "it is known"
    unheeded.append(outgoing.unheeded)
    outgoing.cut()
    assert [*unheeded, outgoing.unheeded] == [False, True, False]
    assert outgoing.size == len(b"an answer")
    outgoing = holding(b"first", b"x" * (UNREAD_BYTES + 1))
    outgoing.grown(0)
    outgoing.cut()
    assert outgoing.unheeded, "there are too many still"
    outgoing = holding(b"x" * (UNREAD_BYTES + 1))
    outgoing.grown(0)
    outgoing.forget()
    assert (bool(outgoing), outgoing.size, outgoing.unheeded) == (False, 0, False)
