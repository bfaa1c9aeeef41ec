"""What is refused when it comes, what waits, and what is overtaken."""

import pytest

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import LINE, LifeStage
from tests.support.lives import Played

ASKS = (on_.Wake, on_.Resume, on_.Sleep, on_.Pause, on_.SyncNow, on_.PutBack)


@pytest.mark.parametrize("command", ASKS)
def test_an_archived_session_refuses_all_but_a_delete_and_a_new_life(command: type[on_.LifeCommand]) -> None:
    played = Played(status=Status.ARCHIVED)
    assert played.outcome(played.ask(command)) == "archived"
    assert played.outcome(played.ask(on_.Delete)) == "ok"
    assert played.outcome(played.ask(on_.Revive)) == "ok"
    assert played.at() == (LifeStage.QUEUED, Status.SLEEPING)


def test_a_session_that_is_not_archived_has_no_new_life() -> None:
    played = Played().alive()
    assert played.outcome(played.ask(on_.Revive)) == "ok"
    assert played.at()[0] is LifeStage.UP


def test_what_makes_no_sense_is_refused() -> None:
    paused, broken, unrestored = (Played(status=s) for s in (Status.PAUSED, Status.ERROR, Status.UNRESTORED))
    assert [paused.outcome(paused.ask(command)) for command in (on_.Wake, on_.Sleep)] == ["paused"] * 2
    assert paused.outcome(paused.ask(on_.Resume, given={"empty": True})) == "not_unrestored"
    assert broken.outcome(broken.ask(on_.Resume, given={"keep": True})) == "not_unrestored"
    assert broken.outcome(broken.ask(on_.PutBack)) == "not_paused"
    assert unrestored.outcome(unrestored.ask(on_.SyncNow)) == "unrestored"
    assert unrestored.outcome(unrestored.ask(on_.Resume, given={"keep": True})) is None
    assert unrestored.life.keep


def test_there_is_no_place_for_one_more_sandbox() -> None:
    played = Played(incarnation=1)
    for command in (on_.Wake, on_.Resume, on_.SyncNow):
        assert played.outcome(played.ask(command, full="full")) == "too_many_running"
    assert played.at() == (LifeStage.REST, Status.SLEEPING), "and nothing has changed"
    played.life.clean = True
    assert played.outcome(played.ask(on_.SyncNow, full="full")) == "ok", "that starts none"
    played.alive()
    assert played.outcome(played.ask(on_.Wake, full="full")) == "ok", "what runs is no further one"
    assert played.outcome(played.ask(on_.Pause, full="full")) is None, "nor is what stops"


def test_only_so_many_commands_wait_and_a_delete_always_may() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.answer(on_.TurnGiven)
    asks = [played.ask(on_.Wake) for _ in range(LINE + 1)]
    assert [played.outcome(ask) for ask in asks[-2:]] == [None, "busy"]
    assert played.outcome(played.ask(on_.Delete)) is None


def test_nobody_is_told_of_a_refusal_that_nobody_waits_for() -> None:
    played = Played(status=Status.UNRESTORED)
    played.event(on_.SyncNow(0))
    assert not played.did(do.RefuseAsk)


@pytest.mark.parametrize("stop", [on_.Sleep, on_.Pause, on_.Delete])
def test_a_session_that_waits_for_its_turn_can_be_stopped_and_deleted(stop: type[on_.LifeCommand]) -> None:
    played = Played(incarnation=1, clean=True)
    wake = played.ask(on_.Wake)
    turn, late = played.life.awaited, played.ask(on_.Wake)
    ask = played.ask(stop)
    assert do.Cancel(turn) in played.last
    assert (played.outcome(wake), played.life.stage) == ("ok", LifeStage.STOPPING)
    played.answer(on_.Stopped)
    if stop is on_.Delete:
        played.answer(on_.ArchivedWritten, on_.Destroyed)
    assert played.outcome(ask) == "ok"
    assert played.outcome(late) == (None if stop is on_.Sleep else "ok"), "only a sleeping one wakes"
    assert played.event(on_.TurnGiven(turn)) == (do.Cancel(turn),), "a turn that comes too late is given back"


def test_a_stop_that_is_refused_gives_no_turn_up() -> None:
    played = Played()
    played.ask(on_.Wake)
    played.life.status = Status.PAUSED
    assert played.outcome(played.ask(on_.Sleep)) == "paused"
    assert played.at()[0] is LifeStage.QUEUED


def test_a_sync_during_a_start_waits_for_it() -> None:
    played = Played(incarnation=1)
    played.event(on_.AgentWanted())
    played.answer(on_.TurnGiven)
    ask = played.ask(on_.SyncNow)
    played.answer(on_.Looked, on_.SandboxStarted, on_.Prepared, on_.AgentReleased)
    assert not played.did(do.Flush)
    played.answer(on_.Linked)
    assert played.now_does(do.Flush)
    assert len(played.did(do.StartHeld)) == 1, "and starts no other"
    played.event(on_.Flushed(played.did(do.Flush)[0].flush))
    assert played.outcome(ask) == "ok"


def test_a_resume_after_a_pause_resumes() -> None:
    played = Played().alive()
    played.ask(on_.Pause)
    resume = played.ask(on_.Resume)
    played.stop()
    assert played.at()[0] is LifeStage.QUEUED
    played.start()
    assert (played.outcome(resume), played.life.status) == ("ok", Status.RUNNING)


def test_a_resume_is_judged_again_when_its_turn_has_come() -> None:
    played = Played(status=Status.UNRESTORED, incarnation=1)
    played.ask(on_.Sleep)
    ask = played.ask(on_.Resume, given={"empty": True})
    played.answer(on_.DoesNotRun, on_.Stopped)
    assert (played.outcome(ask), played.at()) == ("not_unrestored", (LifeStage.REST, Status.SLEEPING))


def test_a_wake_by_name_starts_what_was_given_up_and_what_waits() -> None:
    played = Played().alive()
    for _ in range(3):
        played.hear(on_.AgentExited, given={"code": 1})
        if played.life.restart:
            played.event(on_.RestartDue(played.life.restart))
            played.hear(on_.AgentReady)
    assert played.at() == (LifeStage.UP, Status.ERROR)
    assert played.outcome(played.ask(on_.Wake)) == "ok"
    assert (played.now_does(do.StartAgent), played.life.status) == (True, Status.RUNNING)


def test_what_a_provider_does_not_stop_now_is_asked_for_at_once_for_who_comes() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.answer(on_.TurnGiven, on_.Unrestorable)
    played.answer(on_.NotStopped, reason="away")
    assert played.at()[0] is LifeStage.CLEAR_LATER
    assert played.outcome(played.ask(on_.PutBack)) == "not_paused"
    assert played.at()[0] is LifeStage.CLEAR_LATER
    ask = played.ask(on_.Wake)
    assert played.at()[0] is LifeStage.CLEARING
    played.answer(on_.NotStopped, reason="away")
    assert played.outcome(ask) == "sandbox_unavailable"


def test_who_does_not_wait_any_more_is_not_answered_and_the_rest_goes_on() -> None:
    played = Played()
    wake, other = played.ask(on_.Wake), played.ask(on_.Wake)
    sync = played.ask(on_.SyncNow)
    played.event(on_.Withdraw(wake))
    played.event(on_.Withdraw(other))
    played.start()
    done = played.ask(on_.SyncNow)
    played.event(on_.Withdraw(sync))
    for flush in played.did(do.Flush):
        played.event(on_.Flushed(flush.flush))
    assert [played.outcome(ask) for ask in (wake, other, sync, done)] == [None, None, None, "ok"]
    assert played.at()[0] is LifeStage.UP


def test_a_delete_whose_asker_is_gone_goes_on() -> None:
    played = Played().alive()
    played.event(on_.Withdraw(played.ask(on_.Delete)))
    assert played.at()[0] is LifeStage.ENDING


def test_a_session_that_has_ended_here_answers_everybody_and_touches_nothing() -> None:
    played = Played().alive()
    sync, pause, wake = played.ask(on_.SyncNow), played.ask(on_.Pause), played.ask(on_.Wake)
    played.event(on_.End())
    assert [played.outcome(ask) for ask in (sync, pause, wake)] == ["session_failed"] * 3
    for command in (*ASKS, on_.Delete, on_.Revive):
        assert played.outcome(played.ask(command)) == "session_failed"
        assert len(played.last) == 1
    played.event(on_.SyncNow(0))
    assert played.last == ()


def test_a_sync_while_the_gateway_leaves_ends_nothing() -> None:
    played = Played().alive()
    before = played.ask(on_.SyncNow)
    played.event(on_.Leave())
    assert played.outcome(before) is None
    ask = played.ask(on_.SyncNow)
    flushes = [flush.flush for flush in played.did(do.Flush)]
    played.event(on_.Flushed(flushes[0]))
    played.event(on_.NotFlushed(flushes[1], "it ended", died=True))
    assert (played.outcome(before), played.outcome(ask)) == ("ok", "sync_failed")
    assert not played.did(do.StopSandbox)
    assert played.outcome(played.ask(on_.Wake)) == "draining"
    asleep = Played()
    asleep.event(on_.Leave())
    assert asleep.outcome(asleep.ask(on_.SyncNow)) == "draining"


def test_what_failed_too_often_is_not_started_again_because_something_waits() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    for _ in range(3):
        played.answer(on_.TurnGiven, on_.Unrestorable)
        played.answer(on_.Stopped, facts={"waiting": True})
        if played.life.restart:
            played.event(on_.RestartDue(played.life.restart))
    played.ask(on_.Sleep)
    played.answer(on_.DoesNotRun)
    played.answer(on_.Stopped, facts={"waiting": True})
    assert played.at() == (LifeStage.REST, Status.SLEEPING)


def test_a_second_create_of_an_archived_session_does_not_wait_for_the_start_of_the_first() -> None:
    played = Played(status=Status.ARCHIVED)
    asks = [played.ask(on_.Revive) for _ in range(2)]
    assert [played.outcome(ask) for ask in asks] == ["ok", "ok"]
    assert played.at()[0] is LifeStage.QUEUED


@pytest.mark.parametrize("waits", [False, True])
def test_a_create_that_comes_while_the_session_is_deleted_revives_it(waits: bool) -> None:
    """Also if the delete waits in the line."""
    played = Played().alive()
    if waits:
        played.ask(on_.Pause)
    delete, revive = played.ask(on_.Delete), played.ask(on_.Revive)
    assert played.outcome(revive) is None
    if waits:
        played.answer(on_.Lulled)
        played.hear(on_.AgentExited)
        played.answer(on_.WorkspaceKept, on_.Stopped)
    else:
        played.hear(on_.AgentExited)
    played.answer(on_.Stopped, on_.ArchivedWritten, on_.Destroyed)
    assert (played.outcome(delete), played.outcome(revive)) == ("ok", "ok")
    assert played.at() == (LifeStage.QUEUED, Status.SLEEPING)


@pytest.mark.parametrize(
    ("command", "status"),
    [(on_.Sleep, Status.SLEEPING), (on_.Pause, Status.PAUSED), (on_.Delete, Status.ARCHIVED)],
)
def test_a_stop_need_not_wait_for_an_image(command: type[on_.LifeCommand], status: Status) -> None:
    played = Played()
    woken = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.ImageAwaited)
    start = played.life.awaited
    stopped = played.ask(command)
    assert do.Cancel(start) in played.last
    assert played.outcome(woken) == "ok", "it hears what is"
    assert played.now_does(do.StopSandbox), "it may have come this very moment"
    played.answer(on_.Stopped)
    while played.life.awaited:
        replies = {do.StopSandbox: on_.Stopped, do.WriteArchived: on_.ArchivedWritten, do.Destroy: on_.Destroyed}
        played.answer(next(reply for kind, reply in replies.items() if played.now_does(kind)))
    assert played.at() == (LifeStage.REST, status)
    assert played.outcome(stopped) == "ok"
    assert played.life.incarnation == 0, "nothing ran"


def test_a_stop_that_is_refused_leaves_the_fetch_alone() -> None:
    played = Played()
    played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.ImageAwaited)
    for _ in range(LINE):
        played.ask(on_.Wake)
    assert played.outcome(played.ask(on_.Sleep)) == "busy"
    assert played.at()[0] is LifeStage.FETCHING
