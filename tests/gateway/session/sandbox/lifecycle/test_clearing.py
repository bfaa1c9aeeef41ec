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
