"""What people are shown of a workspace."""

from dataclasses import replace

from gateway.session.workspace.description import ALL_READ, SHOWN_UNREAD, progress_members, sync_members, unread_members
from sync.format.pointer import Generation
from sync.machine.driver import SyncView
from sync.machine.state import State
from sync.snapshots.push import Pushed
from sync.snapshots.restore import RestoreProgress

VIEW = SyncView(State.IDLE, 3, None, "no room", failing=True, dirty=True, attempt=2)
PUSHED = Pushed(Generation(number=3, manifest="g3", at=7.0, files=2, bytes=100), new=True)
PROGRESS = RestoreProgress(3, files=1, of_files=2, bytes=10, of_bytes=20)


def test_nothing_is_shown_of_what_does_not_run() -> None:
    assert sync_members(None, {}, None) == {}


def test_a_sync_is_shown_with_its_last_success_if_there_was_one() -> None:
    shown = {"state": "idle", "generation": 3, "lastError": "no room", "dirty": True, "attempt": 2}
    assert sync_members(VIEW, {}, None) == shown
    then = sync_members(replace(VIEW, last_success=0.0), {}, None)
    assert then == shown | {"lastSuccess": "1970-01-01T00:00:00.000Z"}


def test_a_restore_is_shown_while_it_goes_on() -> None:
    assert sync_members(None, {}, PROGRESS) == {"restore": progress_members(PROGRESS)}
    assert progress_members(PROGRESS) == {"generation": 3, "files": 1, "ofFiles": 2, "bytes": 10, "ofBytes": 20}


def test_files_that_could_not_be_read_are_counted_and_some_are_named() -> None:
    paths = tuple(b"workspace/%d" % number for number in range(SHOWN_UNREAD + 1))
    unread = unread_members(replace(PUSHED, unread=paths, unread_count=99))
    assert unread == {"count": 99, "paths": [f"workspace/{number}" for number in range(SHOWN_UNREAD)]}
    assert sync_members(None, unread, None) == {"unread": unread}
    assert unread_members(PUSHED) is ALL_READ
    assert sync_members(None, ALL_READ, None) == {}
