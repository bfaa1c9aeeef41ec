"""What a workspace begins with, case by case; never with less than it had, unless somebody asked for that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.session.model.state import SessionState
from gateway.session.workspace.errors import NotRestored
from gateway.session.workspace.starting_point import (
    begins_with_disk,
    newest_found,
    newest_unknown,
    restored_before,
    starting_point,
)
from sandbox.protocol.tree import Survey
from sync.format.pointer import Generation
from sync.machine.reconcile import Decision, Newest, decide

THIRD = Generation(number=3, manifest="g3", at=7.0, files=20, bytes=100)
NEW, STORED = SessionState(incarnation=1), SessionState(incarnation=2, generation=3, tree="g3", files=20)
NEWEST = Newest("g3", 20)


def on_disk(files: int) -> Survey:
    return Survey(held=True, known=None, changed=0, files=files)


def test_the_newest_generation_is_begun_with() -> None:
    assert newest_found(THIRD, STORED, keep=False) == NEWEST
    assert newest_found(THIRD, NEW, keep=False) == NEWEST
    assert newest_found(None, NEW, keep=False) is None


def test_a_generation_that_is_gone_is_no_reason_to_begin_empty() -> None:
    with pytest.raises(NotRestored, match=r"generation 3 was stored.*HOLDFAST_OBJECTS.*\{keep:true\}.*\{empty:true\}"):
        newest_found(None, STORED, keep=False)
    assert newest_found(None, STORED, keep=True) is None


def test_the_disk_is_not_kept_where_a_generation_can_be_restored() -> None:
    with pytest.raises(NotRestored, match=r"has generation 3.*without \{keep:true\}"):
        newest_found(THIRD, STORED, keep=True)


def test_a_store_that_does_not_answer_stops_nobody_who_can_do_without() -> None:
    cause = OSError("away")
    assert newest_unknown(STORED, cause, keep=False) == NEWEST, "the disk may equal it"
    assert newest_unknown(NEW, cause, keep=False) is None, "it never ran"
    for state, keep in ((STORED, True), (SessionState(incarnation=2), False)):
        with pytest.raises(NotRestored, match=r"does not answer whether a snapshot exists.*away") as raised:
            newest_unknown(state, cause, keep=keep)
        assert raised.value.__cause__ is cause


def test_there_must_be_something_to_keep() -> None:
    with pytest.raises(NotRestored, match="has no files to keep"):
        starting_point(on_disk(0), None, STORED, empty=False, keep=True)
    assert starting_point(on_disk(1), None, STORED, empty=False, keep=True) is Decision.KEEP_AND_SYNC


@pytest.mark.parametrize(
    ("state", "empty", "right"),
    [
        (SessionState(), False, False),
        (SessionState(), True, True),
        (SessionState(fresh=True), False, True),
        (SessionState(fresh=True, clean=True), False, False),
    ],
)
def test_a_disk_that_began_with_less_is_right(state: SessionState, empty: bool, right: bool) -> None:
    assert begins_with_disk(state, empty=empty) is right
    kept = starting_point(on_disk(1), NEWEST, state, empty=empty, keep=False) is Decision.KEEP_AND_SYNC
    assert kept is right


def test_what_was_too_much_to_be_kept_stays_if_it_is_there() -> None:
    overfull = SessionState(overfull=True)
    assert starting_point(on_disk(1), NEWEST, overfull, empty=False, keep=False) is Decision.KEEP_AND_SYNC
    assert starting_point(on_disk(0), NEWEST, overfull, empty=False, keep=False) is Decision.RESTORE


@given(st.integers(0, 40), st.booleans(), st.booleans())
def test_nothing_else_overrules_the_reconciliation(files: int, stored: bool, clean: bool) -> None:
    newest, state = NEWEST if stored else None, SessionState(clean=clean)
    expected = decide(on_disk(files), newest, clean)
    assert starting_point(on_disk(files), newest, state, empty=False, keep=False) is expected


def test_what_was_restored_and_is_recognised_stays_as_it_is() -> None:
    assert restored_before(Survey(held=True, known="g3", changed=0, files=20), NEWEST) is Decision.KEEP


@pytest.mark.parametrize(
    "survey",
    [Survey(True, None, 0, 20), Survey(True, "g2", 0, 20), Survey(True, "g3", 1, 20)],
    ids=["nothing known", "another", "changed"],
)
def test_what_was_restored_and_is_not_recognised_is_synced(survey: Survey) -> None:
    assert restored_before(survey, NEWEST) is Decision.KEEP_AND_SYNC


def test_a_sandbox_that_does_not_find_what_was_restored_is_not_let_go() -> None:
    with pytest.raises(NotRestored, match="20 files were restored, and the sandbox that was started then finds 3"):
        restored_before(on_disk(3), NEWEST)
