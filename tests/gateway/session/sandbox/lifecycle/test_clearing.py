"""What is declared dead must be."""

import pytest

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import LifeStage
from tests.support.lives import LIMITS, Played


@pytest.mark.parametrize("why", [on_.NotStopped, on_.Unavailable])
def test_a_sandbox_that_cannot_be_stopped_is_not_said_to_be_dead(why: type[on_.Failure]) -> None:
    played = Played()
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked)
    played.answer(on_.StartFailed, reason="no room", bug=True)
    for _ in range(10):
        played.answer(why, reason="away")
        assert played.at() == (LifeStage.CLEAR_LATER, Status.STARTING)
        played.answer(on_.Due)
    assert played.outcome(ask) == "sandbox_unavailable", "and nobody waits for it"
    played.answer(on_.Stopped)
    assert (played.at(), played.life.reason) == ((LifeStage.REST, Status.ERROR), "no room")


def test_a_bridge_that_is_held_each_time_is_given_up() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    for _ in range(LIMITS.crashes):
        played.start()
        played.hear(on_.BridgeHello, given={"held": True}, now=100.0)
        if played.at()[0] is LifeStage.FIND_LATER:
            played.answer(on_.Due)
        played.answer(on_.Runs, on_.Linked)
        played.hear(on_.BridgeHello, given={"held": True})
        played.answer(on_.StillHeld, on_.Stopped)
    assert played.at() == (LifeStage.REST, Status.ERROR)
    assert played.did(do.TellError)[-1].code == "crash_loop"


@pytest.mark.parametrize("wanted", [None, "a message", "an agent", "nobody by name"])
def test_what_was_refused_while_the_provider_was_away_is_not_started_later_unless_it_is_wanted(
    wanted: str | None,
) -> None:
    played = Played()
    ask = 0
    if wanted == "nobody by name":
        played.event(on_.AgentWanted())
    else:
        ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked)
    if wanted == "an agent":
        played.event(on_.AgentWanted())
    played.answer(on_.Unavailable, reason="away")
    assert not ask or played.outcome(ask) == "sandbox_unavailable"
    played.answer(on_.Due)
    played.answer(on_.Stopped, facts={"waiting": wanted == "a message"})
    assert played.at() == (LifeStage.QUEUED if wanted else LifeStage.REST, Status.SLEEPING)


@pytest.mark.parametrize("silent", ["the restore", "the stop after it"])
def test_a_provider_that_falls_silent_during_a_restore_makes_no_session_unrestored(silent: str) -> None:
    played = Played(incarnation=1, clean=True, has_workspace=True)
    ask = played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted)
    if silent == "the stop after it":
        played.answer(on_.Unrestorable, reason="silent")
    played.answer(on_.Unavailable, reason="away")
    assert (played.outcome(ask), played.at()) == ("sandbox_unavailable", (LifeStage.CLEAR_LATER, Status.STARTING))
    assert played.life.reason == "away"
    played.answer(on_.Due, on_.Unavailable, on_.Due)
    played.answer(on_.Stopped, facts={"waiting": True})
    assert played.at() == (LifeStage.QUEUED, Status.SLEEPING)
    assert not played.did(do.TellError)


def test_a_sandbox_whose_restore_failed_and_that_cannot_be_stopped_stays_unrestored() -> None:
    played = Played()
    played.ask(on_.Wake)
    played.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted)
    played.answer(on_.Unrestorable, reason="damaged")
    played.answer(on_.NotStopped, on_.Due, on_.Stopped)
    assert (played.at(), played.life.reason) == ((LifeStage.REST, Status.UNRESTORED), "damaged")
