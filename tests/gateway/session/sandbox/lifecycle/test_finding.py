"""How a sandbox is found again: after a cut, after a restart of the gateway, or not at all."""

import pytest

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import LifeStage
from tests.support.lives import LIMITS, Played


def lost(now: float = 100.0) -> Played:
    """An agent ran, and the link is lost."""
    played = Played().alive()
    played.hear(on_.LinkLost, now=now)
    return played


@pytest.mark.parametrize("what", [on_.SyncNow, on_.Wake])
def test_a_lost_link_is_no_reason_to_end_what_runs(what: type[on_.LifeCommand]) -> None:
    played = lost()
    ask = played.ask(what)
    played.answer(on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello, given={"alive": True})
    if what is on_.SyncNow:
        played.event(on_.Flushed(played.did(do.Flush)[0].flush))
    assert (played.outcome(ask), played.life.stage) == ("ok", LifeStage.UP)
    assert not played.did(do.StopSandbox)
    assert len(played.did(do.StartHeld)) == 1
    assert len(played.did(do.StartAgent)) == 1, "the one that runs goes on"


def test_unknown_is_not_dead() -> None:
    played = lost()
    pause, delete = played.ask(on_.Pause), played.ask(on_.Delete)
    for _ in range(50):
        played.answer(on_.Unavailable, reason="away")
        assert played.at()[0] is LifeStage.FIND_LATER
        assert played.life.connection == "connecting"
        played.answer(on_.Due)
    assert (played.outcome(pause), played.outcome(delete)) == ("sandbox_unavailable", "sandbox_unavailable")
    assert (played.life.status, "away" in played.life.reason) == (Status.RUNNING, True)
    assert not played.did(do.StopSandbox)
    assert len([save for save in played.did(do.Save) if save.reason]) == 1, "the reason is told once"
    played.answer(on_.Runs)
    played.answer(on_.Unavailable, reason="away")
    played.answer(on_.Due, on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello)
    assert (played.at(), played.life.reason) == ((LifeStage.UP, Status.RUNNING), "")


def test_who_comes_while_it_waits_has_it_looked_for_at_once() -> None:
    played = lost()
    played.answer(on_.Unavailable)
    refused = played.ask(on_.PutBack)
    assert (played.outcome(refused), played.life.stage) == ("not_paused", LifeStage.FIND_LATER)
    ask = played.ask(on_.Sleep)
    assert played.at()[0] is LifeStage.ASKING
    played.answer(on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello)
    played.stop()
    assert (played.outcome(ask), played.life.status) == ("ok", Status.SLEEPING)


def test_a_sandbox_that_ended_is_started_again() -> None:
    played = lost()
    played.answer(on_.DoesNotRun)
    assert played.at()[0] is LifeStage.CLEARING
    played.answer(on_.Stopped)
    assert played.at() == (LifeStage.QUEUED, Status.SLEEPING)
    assert (played.life.shown, played.life.connection) == (Status.STARTING, "connecting")


def test_a_sandbox_that_ended_is_not_started_again_if_it_was_paused_meanwhile() -> None:
    played = lost()
    ask = played.ask(on_.Pause)
    played.answer(on_.DoesNotRun, on_.Stopped)
    assert played.at()[0] is LifeStage.KEEPING, "the pause goes first"
    played.answer(on_.DoesNotRun, on_.Stopped)
    assert (played.at(), played.outcome(ask)) == ((LifeStage.REST, Status.PAUSED), "ok")


def test_bridges_that_die_again_and_again_are_given_up() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    for count in range(LIMITS.crashes):
        played.start()
        played.hear(on_.LinkLost, now=100.0)
        if played.at()[0] is LifeStage.FIND_LATER:
            played.answer(on_.Due)
        played.answer(on_.DoesNotRun)
        played.answer(on_.Stopped)
        assert (played.at()[0] is LifeStage.QUEUED) is (count < LIMITS.crashes - 1)
    assert played.at() == (LifeStage.REST, Status.ERROR)
    assert played.did(do.TellError)[-1].code == "crash_loop"
    assert played.did(do.ForgetUnsure)


def test_a_bridge_that_throws_us_out_is_dialled_with_more_and_more_patience() -> None:
    played = lost(now=1.0)
    assert played.at()[0] is LifeStage.FIND_LATER
    for _ in range(3):
        played.answer(on_.Due, on_.Runs, on_.Linked)
        played.hear(on_.LinkLost, now=1.0)
        assert played.at()[0] is LifeStage.FIND_LATER
    assert played.life.flaps == 4


def test_a_sandbox_that_runs_and_refuses_its_link_is_ended_in_the_end() -> None:
    for loading in (False, True):
        played = lost() if not loading else Played(status=Status.RUNNING, incarnation=1)
        if loading:
            played.event(on_.SessionLoaded())
            played.answer(on_.TurnGiven)
        for attempt in range(LIMITS.link_attempts):
            if attempt:
                assert not played.did(do.StopSandbox)
                played.answer(on_.Due)
            played.answer(on_.Runs, on_.DialRefused)
        assert played.at()[0] is LifeStage.CLEARING
        played.answer(on_.Stopped)
        assert played.at()[0] is (LifeStage.REST if loading else LifeStage.QUEUED)


def test_what_ran_before_this_gateway_is_found_in_its_turn() -> None:
    played = Played(status=Status.RUNNING, incarnation=1)
    played.event(on_.SessionLoaded(True))
    assert played.did(do.AskTurn)[0].runs
    played.answer(on_.TurnGiven, on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello, given={"alive": True})
    assert played.at() == (LifeStage.UP, Status.RUNNING)
    assert played.now_does(do.MarkProven)
    assert played.now_does(do.EndTurn)


@pytest.mark.parametrize("waiting", [False, True])
def test_what_ended_before_this_gateway_sleeps_unless_something_waits(waiting: bool) -> None:
    played = Played(status=Status.STARTING, incarnation=1)
    played.event(on_.SessionLoaded())
    played.answer(on_.TurnGiven, on_.DoesNotRun)
    played.answer(on_.Stopped, facts={"waiting": waiting})
    assert played.at()[0] is (LifeStage.QUEUED if waiting else LifeStage.REST)
    assert played.did(do.EndEpoch)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_sandbox_that_still_waits_for_its_workspace_is_never_said_to_run(wanted: bool) -> None:
    played = Played(status=Status.STARTING, incarnation=1)
    played.event(on_.SessionLoaded(True))
    played.answer(on_.TurnGiven, on_.Runs, on_.Linked)
    if wanted:
        played.event(on_.AgentWanted())
    played.hear(on_.BridgeHello, given={"held": True})
    assert played.at()[0] is LifeStage.SURVEYING
    played.hear(on_.BridgeHello, given={"held": True})
    played.answer(on_.StillHeld, on_.Stopped)
    assert Status.RUNNING not in [save.status for save in played.did(do.Save)]
    assert played.at()[0] is (LifeStage.QUEUED if wanted else LifeStage.REST)


def test_an_agent_that_was_let_go_since_it_was_said_to_be_held_is_not_ended() -> None:
    played = Played(status=Status.RUNNING, incarnation=1)
    played.event(on_.SessionLoaded(True))
    played.answer(on_.TurnGiven, on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello, given={"held": True})
    played.answer(on_.LetGo, facts={"waiting": True})
    assert played.at() == (LifeStage.UP, Status.RUNNING)
    assert played.now_does(do.StartAgent)
    assert not played.did(do.StopSandbox)


def test_a_link_lost_while_it_is_being_found_is_found_again() -> None:
    played = lost()
    played.answer(on_.Runs, on_.Linked)
    played.hear(on_.LinkLost, now=1.0)
    played.answer(on_.Due, on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello, given={"held": True})
    survey = played.life.awaited
    played.hear(on_.LinkLost, now=200.0)
    assert do.Cancel(survey) in played.last
    assert played.at()[0] is LifeStage.ASKING
    assert not played.did(do.StopSandbox)


def test_a_bridge_that_holds_an_agent_that_was_let_go_is_begun_anew() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.start()
    played.hear(on_.BridgeHello, given={"held": True}, now=100.0)
    assert played.at()[0] is LifeStage.ASKING
    played.answer(on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello, given={"held": True})
    played.answer(on_.StillHeld, on_.Stopped)
    assert played.at()[0] is LifeStage.QUEUED
    assert played.start().at() == (LifeStage.UP, Status.RUNNING)


def test_an_agent_found_dead_is_started_if_messages_wait() -> None:
    played = lost()
    played.answer(on_.Runs, on_.Linked)
    played.hear(on_.AgentReady)
    played.hear(on_.BridgeHello, waiting=True)
    assert played.at()[0] is LifeStage.UP


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("stop", [on_.Sleep, on_.Pause, on_.Delete])
def test_a_bridge_that_closes_links_before_its_hello_keeps_nobody_waiting(
    stop: type[on_.LifeCommand], held: bool
) -> None:
    played = lost()
    played.answer(on_.Runs, on_.Linked)
    if held:
        played.hear(on_.BridgeHello, given={"held": True})
    wake, sync, asked = (played.ask(command) for command in (on_.Wake, on_.SyncNow, stop))
    played.hear(on_.LinkLost, now=1.0)
    assert (played.outcome(wake), played.outcome(asked)) == ("sandbox_unavailable", None)
    assert len(played.did(do.Flush)) == 1, "it needs no link"
    deleted = stop is on_.Delete
    assert played.at()[0] is (LifeStage.STOPPING if deleted else LifeStage.KEEPING)
    played.answer(*([on_.Stopped, on_.ArchivedWritten, on_.Destroyed] if deleted else [on_.WorkspaceKept, on_.Stopped]))
    played.event(on_.Flushed(played.did(do.Flush)[0].flush))
    assert (played.outcome(asked), played.outcome(sync), played.at()[0]) == ("ok", "ok", LifeStage.REST)


def test_a_stop_that_cannot_be_kept_without_a_link_leaves_its_sandbox_to_be_found() -> None:
    played = lost()
    played.answer(on_.Runs, on_.Linked)
    pause = played.ask(on_.Pause)
    played.hear(on_.LinkLost, now=1.0)
    played.answer(on_.NotKept, reason="not now")
    assert (played.outcome(pause), played.at()) == ("sync_failed", (LifeStage.ASKING, Status.RUNNING))


def test_a_bridge_that_is_held_and_says_nothing_of_its_workspace_is_stopped_at_last() -> None:
    played = Played(status=Status.RUNNING, incarnation=1)
    played.event(on_.SessionLoaded(True))
    played.answer(on_.TurnGiven)
    for attempt in range(LIMITS.link_attempts):
        played.answer(on_.Runs, on_.Linked)
        played.hear(on_.BridgeHello, given={"held": True})
        wake = played.ask(on_.Wake)
        played.answer(on_.DialRefused, reason="it hangs")
        if attempt < LIMITS.link_attempts - 1:
            assert (played.outcome(wake), played.at()[0]) == ("sandbox_unavailable", LifeStage.FIND_LATER)
            assert not played.did(do.StopSandbox)
            played.answer(on_.Due)
    assert played.now_does(do.StopSandbox)
    played.answer(on_.Stopped)
    assert played.at() == (LifeStage.QUEUED, Status.SLEEPING), "the last one waits, and is served"
