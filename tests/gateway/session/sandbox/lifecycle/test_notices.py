"""What nobody asked for by name."""

import pytest

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import LifeStage
from tests.support.lives import Played


@pytest.mark.parametrize(
    "status", [Status.SLEEPING, Status.PAUSED, Status.NEEDS_ENV, Status.ARCHIVED, Status.UNRESTORED]
)
def test_a_sandbox_that_runs_although_its_session_rests_is_stopped(status: Status) -> None:
    """Its gateway died while it put it to sleep."""
    played = Played(status=status, incarnation=1, clean=True)
    played.event(on_.SessionLoaded(True))
    assert played.at()[0] is LifeStage.CLEARING
    played.answer(on_.Stopped)
    assert played.at() == (LifeStage.REST, status)


def test_a_failed_session_whose_sandbox_runs_is_found_again() -> None:
    played = Played(status=Status.ERROR, incarnation=1)
    played.event(on_.SessionLoaded(True))
    assert played.at()[0] is LifeStage.FIND_QUEUED


@pytest.mark.parametrize("waiting", [False, True])
def test_a_message_that_waits_wakes_what_is_loaded(waiting: bool) -> None:
    played = Played()
    played.event(on_.SessionLoaded(), waiting=waiting)
    assert played.at()[0] is (LifeStage.QUEUED if waiting else LifeStage.REST)


def test_an_environment_is_taken_at_any_time() -> None:
    played = Played(status=Status.NEEDS_ENV)
    played.event(on_.EnvGiven())
    assert played.life.status is Status.SLEEPING
    assert played.event(on_.EnvGiven()) == ()


def test_an_idle_session_sleeps_and_a_busy_one_does_not() -> None:
    for facts in ({"idle": True, "waiting": True}, {"idle": False}):
        played = Played().alive()
        played.event(on_.Idle(), **facts)
        assert played.at()[0] is LifeStage.UP
    played.event(on_.Idle(), idle=True)
    assert played.at()[0] is LifeStage.LULLING
    played.event(on_.Idle(), idle=True)
    assert played.last == (), "one at a time stops it"


@pytest.mark.parametrize("status", [Status.ARCHIVED, Status.UNRESTORED])
def test_an_archived_session_is_not_rescued(status: Status) -> None:
    played = Played(status=status, incarnation=1)
    played.event(on_.Rescue())
    assert played.at()[0] is LifeStage.REST


def test_a_gateway_that_leaves_lets_the_sandbox_go_on() -> None:
    for begun in (None, on_.Pause):
        played = Played().alive()
        if begun is not None:
            ask = played.ask(begun)
            played.answer(on_.Lulled)
            played.hear(on_.AgentExited)
        link, awaited = played.life.link, played.life.awaited
        played.event(on_.Leave())
        assert do.DropLink(link) in played.last
        assert not played.did(do.StopSandbox)
        assert played.at()[0] is LifeStage.LEFT
        assert played.life.connection == "disconnected"
        if begun is not None:
            assert do.Cancel(awaited) in played.last
            assert played.now_does(do.Thaw)
            assert played.outcome(ask) == "draining"
            assert played.event(on_.WorkspaceKept(awaited)) == (), "it comes too late"


def test_a_link_that_comes_for_a_session_that_failed_meanwhile_is_closed() -> None:
    played = Played().alive()
    played.hear(on_.LinkLost, now=100.0)
    played.answer(on_.Runs)
    connect = played.life.awaited
    played.event(on_.End())
    assert played.event(on_.Linked(connect)) == (do.Cancel(connect),)


def test_nothing_is_restarted_after_the_end() -> None:
    played = Played().alive()
    played.hear(on_.AgentExited, given={"code": 1})
    restart = played.life.restart
    played.event(on_.End())
    assert do.Cancel(restart) in played.last
    assert played.event(on_.RestartDue(restart)) == ()


def test_what_is_wanted_while_it_is_cleared_away_is_started_then() -> None:
    played = Played(incarnation=1, clean=True)
    played.event(on_.SessionLoaded(True))
    played.event(on_.AgentWanted())
    played.answer(on_.Stopped)
    assert played.at()[0] is LifeStage.QUEUED
