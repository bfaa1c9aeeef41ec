"""How a sandbox starts, and what becomes of a start that fails."""

import pytest

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.clearing import STORE_AWAY
from gateway.session.sandbox.lifecycle.life import LifeStage
from tests.support.lives import Played


def test_the_agent_is_let_go_after_the_workspace_is_proven_and_not_before() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    for reply in (on_.TurnGiven, on_.Looked, on_.SandboxStarted):
        played.answer(reply)
        assert not played.did(do.Release)
    played.answer(on_.Prepared)
    assert played.now_does(do.Release)
    played.answer(on_.AgentReleased, on_.Linked)
    assert played.at() == (LifeStage.UP, Status.RUNNING)
    assert not played.did(do.StartAgent), "the bridge may say that one runs"
    played.hear(on_.BridgeHello)
    assert played.now_does(do.StartAgent)


def test_a_wake_takes_the_sandbox_once_for_all_who_want_it() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    asks = [played.ask(on_.Wake), played.ask(on_.Resume)]
    played.answer(on_.TurnGiven)
    asks.append(played.ask(on_.Wake))
    played.answer(on_.Looked, on_.SandboxStarted, on_.Prepared, on_.AgentReleased, on_.Linked)
    assert [played.outcome(ask) for ask in asks] == ["ok"] * 3
    assert len(played.did(do.StartHeld)) == 1


def test_a_sandbox_that_would_not_see_what_was_restored_is_started_anew_and_prepared_again() -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.RestoredUnseen)
    assert played.at() == (LifeStage.STARTING, Status.STARTING)
    assert not played.did(do.Release)
    assert not played.did(do.StopSandbox), "a start ends the one that runs"
    assert [start.incarnation for start in played.did(do.StartHeld)] == [1, 2]
    assert played.did(do.Save)[-1].incarnation == 2, "no two sandboxes have one number"
    played.answer(on_.SandboxStarted, on_.Prepared, on_.AgentReleased, on_.Linked)
    assert (played.outcome(ask), len(played.did(do.AskTurn))) == ("ok", 1)


@pytest.mark.parametrize(
    ("reply", "status"), [(on_.StartFailed, Status.ERROR), (on_.Unavailable, Status.STARTING)], ids=["fails", "silent"]
)
def test_a_sandbox_that_cannot_be_started_anew_is_cleared_like_any_other(
    reply: type[on_.Failure], status: Status
) -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.RestoredUnseen)
    played.answer(reply, reason="no room", facts={"waiting": True})
    if reply is on_.Unavailable:
        assert (played.life.stage, played.life.status, played.life.incarnation) == (LifeStage.CLEAR_LATER, status, 1)
    else:
        assert played.now_does(do.StopSandbox)
        played.answer(on_.Stopped)
        assert played.at() == (LifeStage.REST, status)
    assert not played.did(do.Release)


def test_a_visit_is_not_asked_whether_programs_would_see_what_was_restored() -> None:
    played = Played(incarnation=1)
    played.ask(on_.SyncNow)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted)
    assert played.did(do.Prepare)[-1].visit


def test_a_long_restore_is_nobodys_turn() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.answer(on_.TurnGiven, on_.Looked)
    assert not played.did(do.EndTurn)
    played.answer(on_.SandboxStarted)
    assert played.now_does(do.EndTurn)


def test_a_workspace_that_begins_empty_is_not_looked_for() -> None:
    played = Played(status=Status.UNRESTORED, incarnation=1)
    ask = played.ask(on_.Resume, given={"empty": True})
    played.answer(on_.TurnGiven)
    assert not played.did(do.LookForNewest)
    assert played.did(do.StartHeld)[0].empty
    played.answer(on_.SandboxStarted, on_.Prepared, on_.AgentReleased, on_.Linked)
    assert played.outcome(ask) == "ok"


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_what_cannot_be_restored_is_stopped_and_then_unrestored(failing: int) -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, *(on_.Looked, on_.SandboxStarted, on_.Prepared)[:failing])
    played.answer(on_.Unrestorable, reason="gone")
    assert played.at() == (LifeStage.CLEARING, Status.STARTING), "it is dead before anybody hears so"
    assert played.now_does(do.StopSandbox)
    played.answer(on_.Stopped, facts={"waiting": True})
    assert played.at() == (LifeStage.REST, Status.UNRESTORED)
    assert (played.life.reason, played.outcome(ask)) == ("gone", "ok")
    assert played.did(do.TellError)[-1].code == "unrestored"
    assert played.did(do.ScheduleRestart), "a message waits"


def test_a_start_that_breaks_is_an_error_for_who_asked_and_can_be_tried_again() -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked)
    played.answer(on_.StartFailed, reason="injected", bug=True)
    played.answer(on_.Stopped)
    assert (played.at(), played.outcome(ask)) == ((LifeStage.REST, Status.ERROR), "start_failed")
    played.event(on_.AgentWanted())
    assert played.start().at() == (LifeStage.UP, Status.RUNNING)


def test_a_sandbox_that_fails_to_start_is_left_alone_after_a_few_times_until_somebody_asks_by_name() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    for attempt in range(3):
        played.answer(on_.TurnGiven, on_.Looked)
        played.answer(on_.StartFailed, reason="no room")
        played.answer(on_.Stopped, facts={"waiting": True})
        assert played.at() == (LifeStage.REST, Status.ERROR)
        played.event(on_.AgentWanted())
        assert played.at()[0] is LifeStage.REST, "the next attempt is due later, or never"
        assert bool(played.life.restart) is (attempt < 2)
        if played.life.restart:
            assert played.life.connection == "connecting"
            played.event(on_.RestartDue(played.life.restart))
    assert played.life.connection == "disconnected"
    played.ask(on_.Wake)
    assert played.at()[0] is LifeStage.QUEUED


def test_a_start_whose_release_is_not_written_leaves_nothing_running_and_says_so() -> None:
    for waiting in (False, True):
        played = Played()
        ask = played.ask(on_.Wake)
        played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared)
        assert played.did(do.Release)[0].bounded
        played.answer(on_.StoreSilent)
        played.answer(on_.Stopped, facts={"waiting": waiting})
        assert (played.at(), played.life.reason) == ((LifeStage.REST, Status.SLEEPING), STORE_AWAY)
        assert played.outcome(ask) == "storage_unavailable"
        assert bool(played.did(do.ScheduleRestart)) is waiting


def test_a_provider_that_does_not_say_whether_it_started_is_asked_again() -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked)
    played.answer(on_.Unavailable, reason="away")
    assert (played.outcome(ask), played.at()) == ("sandbox_unavailable", (LifeStage.CLEAR_LATER, Status.STARTING))
    assert "away" in played.life.reason
    assert not played.did(do.StopSandbox)
    played.answer(on_.Due)
    played.answer(on_.Stopped, facts={"waiting": True})
    assert played.at()[0] is LifeStage.QUEUED, "it is started again"
    played.answer(on_.TurnGiven)
    assert played.life.incarnation == 1, "and counted once"


def test_what_was_let_go_and_cannot_be_dialled_now_is_found_again() -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared, on_.AgentReleased)
    played.answer(on_.Unavailable, reason="away")
    assert (played.outcome(ask), played.at()) == ("sandbox_unavailable", (LifeStage.FIND_LATER, Status.RUNNING))
    played.answer(on_.Due, on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello)
    assert played.at() == (LifeStage.UP, Status.RUNNING)
    assert not played.did(do.StopSandbox)


def test_a_session_that_lacks_its_environment_or_may_not_have_its_network_does_not_start() -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, facts={"lacks_env": True})
    assert (played.at(), played.outcome(ask)) == ((LifeStage.REST, Status.NEEDS_ENV), "ok")
    assert played.now_does(do.EndTurn)
    played.event(on_.EnvGiven())
    assert played.life.status is Status.SLEEPING
    played.event(on_.AgentWanted())
    played.answer(on_.TurnGiven, facts={"forbidden": "not this network"})
    assert (played.at(), played.life.reason) == ((LifeStage.REST, Status.ERROR), "not this network")
    assert played.did(do.TellError)[-1].code == "network_not_allowed"


def test_a_link_refused_at_the_end_of_a_start_is_an_error() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared, on_.AgentReleased)
    played.answer(on_.DialRefused, reason="nobody there")
    played.answer(on_.Stopped)
    assert (played.at(), played.life.reason) == ((LifeStage.REST, Status.ERROR), "nobody there")


def test_a_provider_that_falls_silent_when_the_agent_is_let_go_says_nothing_of_the_workspace() -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared)
    played.answer(on_.Unavailable, reason="away")
    assert (played.outcome(ask), played.life.status) == ("sandbox_unavailable", Status.STARTING)
    played.answer(on_.Due)
    assert played.now_does(do.StopSandbox), "what may run is stopped before another is started"
    played.answer(on_.Stopped)
    assert (played.life.status, played.life.clean, played.life.has_workspace) == (Status.SLEEPING, False, True)


def test_while_its_image_is_fetched_a_start_is_nobodys_turn() -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.ImageAwaited)
    assert played.at() == (LifeStage.FETCHING, Status.STARTING)
    assert played.now_does(do.EndTurn)
    assert played.life.placed
    played.ask(on_.Wake)
    played.answer(on_.ImageFetched)
    assert played.at() == (LifeStage.STARTING, Status.STARTING)
    played.answer(on_.SandboxStarted, on_.Prepared, on_.AgentReleased, on_.Linked)
    assert (played.outcome(ask), len(played.did(do.StartHeld))) == ("ok", 1)


def test_an_image_that_cannot_be_had_fails_the_start() -> None:
    played = Played()
    played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.ImageAwaited)
    played.answer(on_.StartFailed, reason="no such image")
    played.answer(on_.Stopped)
    assert played.at() == (LifeStage.REST, Status.ERROR)
    assert played.life.reason == "no such image"
