"""Words for the outside."""

import pytest

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import RISING, LifeStage
from tests.support.lives import Played


def test_a_connection_is_told_when_it_is_another() -> None:
    played = Played().alive()
    played.hear(on_.AgentExited)
    played.ask(on_.Sleep)
    played.stop()
    words = [told.word for told in played.did(do.TellConnection)]
    assert words == ["connecting", "connected", "disconnected", "sleeping"]


@pytest.mark.parametrize("stage", LifeStage)
def test_a_sandbox_takes_a_place_from_its_turn_to_its_end(stage: LifeStage) -> None:
    played = Played(stage=stage)
    free = (
        stage in (LifeStage.REST, LifeStage.QUEUED, LifeStage.PUTTING_BACK, LifeStage.LEFT, LifeStage.ENDED)
        or "visit" in stage
    )
    assert played.life.placed is not free


@pytest.mark.parametrize("stage", LifeStage)
def test_what_comes_up_is_connecting(stage: LifeStage) -> None:
    played = Played(stage=stage, status=Status.RUNNING)
    assert (played.life.connection == "connecting") is (stage in RISING)


def test_one_that_waits_for_its_turn_is_shown_as_starting() -> None:
    shown = [Played(status=status, stage=LifeStage.QUEUED).life.shown for status in (Status.SLEEPING, Status.ERROR)]
    assert shown == [Status.STARTING, Status.ERROR]


def test_what_was_never_started_leaves_nothing() -> None:
    assert not Played().life.leaves_something
    assert Played(incarnation=1).life.unkept
    assert Played(has_workspace=True).life.leaves_something


def test_a_restart_is_scheduled_once() -> None:
    played = Played().alive()
    played.hear(on_.AgentExited, given={"code": 1})
    played.life.restart_later(on_.Facts())
    assert len(played.did(do.ScheduleRestart)) == 1
    assert played.life.effects == []
