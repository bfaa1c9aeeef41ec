"""What a dead sandbox left is kept, and generations are put back."""

import pytest

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import LifeStage
from tests.support.lives import Played


def dead(status: Status = Status.SLEEPING) -> Played:
    return Played(status=status, incarnation=1, has_workspace=True)


def visit(played: Played) -> None:
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared, on_.WorkspaceKept, on_.Stopped)


def test_what_a_dead_sandbox_left_is_kept_and_its_status_stays() -> None:
    played = dead(Status.ERROR)
    ask = played.ask(on_.SyncNow)
    assert played.did(do.AskTurn)[0].visit
    assert not played.life.placed
    played.answer(on_.TurnGiven, on_.Looked)
    assert played.did(do.StartHeld)[0].visit
    played.answer(on_.SandboxStarted, on_.Prepared, on_.WorkspaceKept)
    assert (played.outcome(ask), played.life.stage) == (None, LifeStage.VISIT_STOPPING)
    played.answer(on_.Stopped)
    assert (played.outcome(ask), played.at(), played.life.clean) == ("ok", (LifeStage.REST, Status.ERROR), True)
    assert not played.did(do.Release)
    assert played.outcome(played.ask(on_.SyncNow)) == "ok", "all is kept"


def test_a_visit_that_fails_is_told_and_a_rescue_is_tried_again_later() -> None:
    steps = (on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared)
    fails: list[tuple[int, type[on_.Failure]]] = [(1, on_.Unrestorable), (2, on_.StartFailed), (2, on_.Unavailable)]
    fails += [(3, on_.Unrestorable)]
    fails += [(4, on_.NotKept), (4, on_.Overfull), (4, on_.Unavailable)]
    for count, why in fails:
        played = dead()
        ask = played.ask(on_.SyncNow)
        played.answer(*steps[:count])
        played.answer(why, reason="not now")
        assert played.now_does(do.StopSandbox), "nothing ran in it"
        played.answer(on_.Stopped)
        assert (played.outcome(ask), played.life.stage, played.life.unkept) == ("sync_failed", LifeStage.REST, True)
        assert played.life.overfull is (why is on_.Overfull)
        played.event(on_.Rescue())
        assert played.at()[0] is LifeStage.REST, "not yet"
        played.event(on_.Rescue(), now=1000.0)
        assert played.at()[0] is (LifeStage.REST if why is on_.Overfull else LifeStage.VISIT_QUEUED)


def test_a_sandbox_that_dies_while_it_is_visited_is_told_and_stopped() -> None:
    played = dead()
    ask = played.ask(on_.SyncNow)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared, on_.DoesNotRun, on_.Stopped)
    assert (played.outcome(ask), played.life.unkept) == ("sync_failed", True)


def test_files_that_were_replaced_are_told() -> None:
    played = dead()
    ask = played.ask(on_.SyncNow)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared)
    played.answer(on_.WorkspaceKept, replaced=True)
    played.answer(on_.Stopped)
    assert (played.outcome(ask), played.life.clean) == ("sync_failed", True)


@pytest.mark.parametrize("why", [on_.NotStopped, on_.Unavailable])
def test_a_visited_sandbox_is_stopped_for_sure(why: type[on_.Failure]) -> None:
    played = dead()
    ask = played.ask(on_.SyncNow)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared, on_.WorkspaceKept)
    played.answer(why, reason="away")
    assert (played.outcome(ask), played.life.stage) == ("sandbox_unavailable", LifeStage.CLEAR_LATER)
    played.answer(on_.Due, on_.Stopped)
    assert (played.at(), played.life.clean) == ((LifeStage.REST, Status.SLEEPING), True)


def test_a_look_at_what_was_left_waits_no_longer_when_its_session_starts() -> None:
    """Its session has the place that both waited for."""
    for start in (on_.AgentWanted, on_.Wake):
        played = dead()
        ask = played.ask(on_.SyncNow)
        turn = played.life.awaited
        if start is on_.AgentWanted:
            played.event(on_.AgentWanted())
        else:
            played.ask(on_.Wake)
        assert do.Cancel(turn) in played.last
        assert played.at()[0] is LifeStage.QUEUED
        played.start()
        assert played.at()[0] is LifeStage.UP
        played.event(on_.Flushed(played.did(do.Flush)[0].flush))
        assert played.outcome(ask) == "ok"


def test_a_visit_goes_on_if_the_session_may_not_start() -> None:
    played = dead(Status.PAUSED)
    played.ask(on_.SyncNow)
    played.event(on_.AgentWanted())
    assert played.at()[0] is LifeStage.VISIT_QUEUED
    assert played.outcome(played.ask(on_.Wake)) == "paused"
    assert played.at()[0] is LifeStage.VISIT_QUEUED


@pytest.mark.parametrize("first", [on_.Pause, on_.Delete])
def test_a_visit_that_waits_for_its_turn_can_be_overtaken(first: type[on_.LifeCommand]) -> None:
    played = dead()
    sync, ask = played.ask(on_.SyncNow), played.ask(first)
    if first is on_.Pause:
        played.answer(on_.DoesNotRun, on_.Stopped)
        assert (played.outcome(ask), played.life.stage) == ("ok", LifeStage.VISIT_QUEUED)
        visit(played)
        assert (played.outcome(sync), played.life.status) == ("ok", Status.PAUSED)
    else:
        played.answer(on_.Stopped, on_.ArchivedWritten, on_.Destroyed)
        assert (played.outcome(ask), played.outcome(sync)) == ("ok", "not_synced")


def test_what_is_wanted_during_a_visit_starts_after_it() -> None:
    played = dead()
    played.event(on_.Rescue())
    played.answer(on_.TurnGiven, on_.Looked)
    played.event(on_.AgentWanted())
    played.answer(on_.SandboxStarted, on_.Prepared, on_.WorkspaceKept, on_.Stopped)
    assert played.at()[0] is LifeStage.QUEUED


def test_a_generation_is_put_back_after_what_is_there_was_kept() -> None:
    played = dead(Status.PAUSED)
    ask = played.ask(on_.PutBack, given={"generation": 3})
    assert played.at()[0] is LifeStage.VISIT_QUEUED
    visit(played)
    assert not played.did(do.PutBackGeneration), "another gateway may have the session"
    played.answer(on_.OwnerConfirmed)
    assert played.did(do.PutBackGeneration)[0].generation == 3
    played.answer(on_.PutInPlace)
    assert (played.outcome(ask), played.at()) == ("ok", (LifeStage.REST, Status.PAUSED))
    ask = played.ask(on_.PutBack)
    assert played.at()[0] is LifeStage.CONFIRMING, "all is kept"
    played.answer(on_.OwnerConfirmed)
    played.answer(on_.NotPutInPlace, reason="no such generation")
    assert played.outcome(ask) == "not_put_back"


@pytest.mark.parametrize("unread", [False, True])
def test_a_disk_that_cannot_be_recognised_is_replaced_only_for_what_may_not_be_read(unread: bool) -> None:
    played = dead(Status.PAUSED)
    ask = played.ask(on_.PutBack)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared)
    played.answer(on_.WorkspaceKept, remembered=False)
    played.answer(on_.Stopped, facts={"unread": unread})
    assert played.outcome(ask) == (None if unread else "not_paused")
    assert played.at()[0] is (LifeStage.CONFIRMING if unread else LifeStage.REST)


def test_a_generation_is_not_put_back_if_what_is_there_cannot_be_kept_or_the_session_goes_on() -> None:
    played = dead(Status.PAUSED)
    ask = played.ask(on_.PutBack)
    played.answer(on_.TurnGiven, on_.Unrestorable, on_.Stopped)
    assert played.outcome(ask) == "sync_failed"
    ask = played.ask(on_.PutBack)
    played.ask(on_.Resume)
    played.start()
    assert played.outcome(ask) == "not_paused"
    assert not played.did(do.PutBackGeneration)


def test_nothing_is_put_back_while_the_store_does_not_say_whose_session_it_is_or_nobody_waits_for_it() -> None:
    played = Played(status=Status.PAUSED, incarnation=1, clean=True, has_workspace=True)
    ask = played.ask(on_.PutBack)
    played.answer(on_.StoreSilent)
    assert (played.outcome(ask), played.at()) == ("storage_unavailable", (LifeStage.REST, Status.PAUSED))
    ask = played.ask(on_.PutBack)
    played.event(on_.Withdraw(ask))
    played.answer(on_.OwnerConfirmed)
    assert (played.outcome(ask), played.at()) == (None, (LifeStage.REST, Status.PAUSED))
    assert not played.did(do.PutBackGeneration)
