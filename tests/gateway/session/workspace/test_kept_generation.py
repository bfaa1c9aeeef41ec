"""What a session's state says of its newest generation, and when it has to be written again."""

from dataclasses import replace as seen

from msgspec.structs import replace

from gateway.session.model.state import SessionState
from gateway.session.workspace.kept_generation import KeptGeneration, sync_changes
from sync.format.pointer import Generation
from sync.machine.driver import SyncView
from sync.machine.state import State
from sync.snapshots.push import Standing

NEWEST = Generation(number=3, manifest="g3", at=7.0, files=2, bytes=100)
VIEW = SyncView(State.IDLE, 3, 7.0, None, failing=False, dirty=False, attempt=0)
OLD = SessionState(generation=2, tree="g2", degraded="the newest is damaged", fresh=True)
UP_TO_DATE = SessionState(generation=3, tree="g3")


def kept() -> KeptGeneration:
    kept = KeptGeneration()
    kept.newest = NEWEST
    return kept


def test_a_process_that_has_seen_none_goes_by_the_state() -> None:
    nothing = KeptGeneration()
    assert nothing.members == {}
    assert nothing.number(OLD) == 2
    assert nothing.standing(OLD) == Standing(2)
    assert sync_changes(VIEW, None, OLD) == {}


def test_the_newest_that_was_seen_is_what_the_state_is_to_say() -> None:
    assert replace(OLD, **kept().members) == replace(
        OLD, generation=3, tree="g3", files=2, snapshot_bytes=100, synced_at=7.0
    )
    assert kept().number(OLD) == 3


def test_the_next_generation_is_above_all_that_were_known() -> None:
    assert kept().standing(OLD) == Standing(3)
    begun = kept()
    begun.begins_with_less = True
    assert begun.standing(SessionState(generation=5)) == Standing(5, begun_without=True)


def test_a_new_generation_is_written_and_ends_what_was_wrong_before() -> None:
    changes = sync_changes(VIEW, NEWEST, OLD)
    assert changes == {"sync_error": "", **kept().members, "degraded": "", "fresh": False}
    assert sync_changes(VIEW, NEWEST, replace(OLD, **changes)) == {}


def test_a_view_of_an_earlier_generation_says_nothing_of_the_newest() -> None:
    assert sync_changes(seen(VIEW, generation=2), NEWEST, OLD) == {}


def test_a_failure_is_written_once_and_its_end_too() -> None:
    failing = seen(VIEW, failing=True, last_error="no room")
    assert sync_changes(failing, NEWEST, UP_TO_DATE) == {"sync_error": "no room"}
    failed = replace(UP_TO_DATE, sync_error="no room")
    assert sync_changes(failing, NEWEST, failed) == {}
    assert sync_changes(VIEW, NEWEST, failed) == {"sync_error": ""}
    assert sync_changes(seen(failing, last_error=None), NEWEST, UP_TO_DATE) == {"sync_error": "it failed"}
    assert sync_changes(seen(VIEW, last_error="once"), NEWEST, UP_TO_DATE) == {}, "the round has not given up"
