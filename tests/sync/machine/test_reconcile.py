"""What is done with a disk that was found, case by case and in general."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.tree import Survey
from sync.machine.reconcile import Decision, Newest, decide, lost_most

KEEP, KEEP_AND_SYNC, RESTORE, RESTORE_ASIDE = (
    Decision.KEEP,
    Decision.KEEP_AND_SYNC,
    Decision.RESTORE,
    Decision.RESTORE_ASIDE,
)
NEWEST = Newest("g7", 100)
EMPTY = Newest("g1", 0)


def found(files: int, *, known: str | None = "g7", changed: int = 0) -> Survey:
    return Survey(held=True, known=known, changed=changed, files=files)


@pytest.mark.parametrize(
    ("survey", "newest", "after_clean", "after_crash"),
    [
        (found(0, known=None), None, KEEP, KEEP),
        (found(3, known=None), None, KEEP_AND_SYNC, KEEP_AND_SYNC),
        (found(100), NEWEST, KEEP, KEEP_AND_SYNC),
        (found(100, changed=1), NEWEST, RESTORE_ASIDE, KEEP_AND_SYNC),
        (found(100, known="g6"), NEWEST, RESTORE_ASIDE, KEEP_AND_SYNC),
        (found(100, known=None), NEWEST, RESTORE_ASIDE, KEEP_AND_SYNC),
        (found(50, changed=50), NEWEST, RESTORE_ASIDE, KEEP_AND_SYNC),
        (found(49, changed=51), NEWEST, RESTORE_ASIDE, RESTORE_ASIDE),
        (found(1, known=None), NEWEST, RESTORE_ASIDE, RESTORE_ASIDE),
        (found(0, known=None), NEWEST, RESTORE, RESTORE),
        (found(0, changed=100), NEWEST, RESTORE, RESTORE),
        (found(900, changed=800), NEWEST, RESTORE_ASIDE, KEEP_AND_SYNC),
        (found(0, known="g1"), EMPTY, KEEP, KEEP_AND_SYNC),
        (found(0, known=None), EMPTY, RESTORE, RESTORE),
        (found(2, known="g1", changed=2), EMPTY, RESTORE_ASIDE, KEEP_AND_SYNC),
    ],
)
def test_what_is_done_with_a_disk(
    survey: Survey, newest: Newest | None, after_clean: Decision, after_crash: Decision
) -> None:
    assert decide(survey, newest, clean=True) is after_clean
    assert decide(survey, newest, clean=False) is after_crash


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [(0, 0, False), (1, 0, True), (1, 1, False), (2, 1, False), (3, 1, True), (100, 50, False), (100, 49, True)],
)
def test_more_than_half_of_the_files_is_most(before: int, after: int, lost: bool) -> None:
    assert lost_most(before, after) is lost


counts = st.integers(0, 12)
tokens = st.sampled_from(["g1", "g2"])
surveys = st.builds(Survey, held=st.booleans(), known=st.none() | tokens, changed=counts, files=st.integers(0, 6))


@given(survey=surveys, newest=st.none() | st.builds(Newest, token=tokens, files=counts), clean=st.booleans())
def test_no_file_is_thrown_away_and_no_difference_overlooked(
    survey: Survey, newest: Newest | None, clean: bool
) -> None:
    decision = decide(survey, newest, clean)
    if decision is RESTORE:
        assert survey.files == 0
    if decision in (RESTORE, RESTORE_ASIDE):
        assert newest is not None
    if decision is KEEP:
        assert survey.files == 0 if newest is None else (survey.known, survey.changed) == (newest.token, 0)
    if newest is not None and newest.files and survey.files == 0 and not clean:
        assert decision is RESTORE
