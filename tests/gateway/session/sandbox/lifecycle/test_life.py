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
    free = stage in ("rest", "queued", "confirming", "putting_back", "left", "ended") or "visit" in stage
    assert played.life.placed is not free


@pytest.mark.parametrize("stage", LifeStage)
def test_what_comes_up_is_connecting(stage: LifeStage) -> None:
    played = Played(stage=stage, status=Status.RUNNING)
    assert (played.life.connection == "connecting") is (stage in RISING)


def test_one_that_waits_for_its_turn_is_shown_as_starting() -> None:
    shown = [Played(status=status, stage=LifeStage.QUEUED).life.shown for status in (Status.SLEEPING, Status.ERROR)]
    assert shown == [Status.STARTING, Status.ERROR]


@pytest.mark.parametrize("stage", LifeStage)
def test_what_is_under_way_has_a_word(stage: LifeStage) -> None:
    life = Played(stage=stage).life
    still = (LifeStage.REST, LifeStage.UP, LifeStage.LEFT, LifeStage.ENDED)
    stops = (LifeStage.LULLING, LifeStage.ENDING, LifeStage.KEEPING, LifeStage.STOPPING)
    assert (life.busy, life.stopping, life.rising) == (stage not in still, stage in stops, stage in RISING)


def test_one_that_was_up_is_not_stopping_before_its_last_sync_can_begin() -> None:
    assert not Played(stage=LifeStage.LULLING, greeted=True).life.stopping


def test_a_bridge_can_be_talked_to_while_a_link_is_there_or_should_be() -> None:
    assert [Played(**state).life.up for state in ({}, {"status": Status.RUNNING}, {"link": 1})] == [False, True, True]
    assert not Played(status=Status.ERROR).life.coming_up
    assert Played(status=Status.STARTING).life.coming_up
    assert Played(status=Status.ERROR, restart=1).life.coming_up
    assert Played(status=Status.ERROR, stage=LifeStage.QUEUED).life.coming_up


def test_what_was_never_started_leaves_nothing() -> None:
    assert not Played().life.leaves_something
    assert Played(incarnation=1).life.unkept
    assert Played(has_workspace=True).life.leaves_something
