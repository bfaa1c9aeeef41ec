"""Agents that start, end and crash; and syncs beside all else."""

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import AgentPhase, LifeStage
from tests.support.lives import LIMITS, Played


def test_an_agent_that_crashes_is_started_again_after_a_pause_and_given_up_in_the_end() -> None:
    played = Played().alive()
    for count in range(LIMITS.crashes):
        played.hear(on_.AgentExited, given={"code": 1, "reason": "broken"})
        if count < LIMITS.crashes - 1:
            played.event(on_.AgentWanted())
            assert not played.now_does(do.StartAgent), "it waits for the next attempt"
            assert played.life.connection == "connecting"
            played.event(on_.RestartDue(played.life.restart))
            assert played.now_does(do.StartAgent)
            played.hear(on_.AgentReady)
    assert played.at() == (LifeStage.UP, Status.ERROR)
    assert "broken" in played.life.reason
    played.event(on_.AgentWanted())
    assert played.last == (), "until the window has passed"
    played.event(on_.AgentWanted(), now=1000.0)
    assert (played.now_does(do.StartAgent), played.life.status) == (True, Status.RUNNING)


def test_an_agent_that_ended_in_order_is_started_again_only_if_something_waits() -> None:
    for waiting in (False, True):
        played = Played().alive()
        played.hear(on_.AgentExited, waiting=waiting)
        assert bool(played.life.restart) is waiting


def test_an_agent_that_was_asked_to_end_has_not_crashed() -> None:
    played = Played().alive()
    played.event(on_.EndAgent())
    assert played.now_does(do.TellAgentToStop)
    played.hear(on_.AgentExited, given={"code": None})
    assert not played.life.restart
    assert played.event(on_.EndAgent()) == (), "none runs"


def test_an_agent_that_cannot_start_counts_as_crashed_and_other_problems_do_not() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.start()
    played.hear(on_.BridgeHello)
    played.hear(on_.AgentProblem, given={"reason": "no such program"})
    assert (played.life.agent, bool(played.life.restart)) == (AgentPhase.NONE, True)
    played.event(on_.RestartDue(played.life.restart))
    played.hear(on_.AgentReady)
    played.hear(on_.AgentProblem, given={"reason": "a warning"})
    assert (played.life.agent, played.life.restart) == (AgentPhase.ALIVE, 0)
    assert len(played.did(do.TellError)) == 2


def test_a_problem_heard_while_it_stops_does_not_wake_it_again() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.start()
    played.hear(on_.BridgeHello)
    played.ask(on_.Sleep)
    played.hear(on_.AgentProblem, given={"reason": "no such program"})
    played.stop()
    assert (played.at(), played.life.restart) == ((LifeStage.REST, Status.SLEEPING), 0)


def test_an_exit_that_waits_for_the_store_is_waited_for() -> None:
    played = Played().alive()
    played.event(on_.AgentWanted())
    assert played.last == (), "one runs"
    played.event(on_.AgentWanted(), exit_due=True)
    assert (played.life.wanted, len(played.did(do.StartAgent))) == (True, 1)
    played.hear(on_.AgentExited)
    played.event(on_.RestartDue(played.life.restart))
    assert len(played.did(do.StartAgent)) == 2


def test_an_agent_that_is_about_to_start_is_not_started_twice() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.start()
    played.hear(on_.BridgeHello)
    played.event(on_.AgentWanted())
    assert len(played.did(do.StartAgent)) == 1
    assert played.life.connection == "connecting"


def test_a_sync_whose_sandbox_dies_is_made_again_three_times() -> None:
    played = Played().alive()
    ask = played.ask(on_.SyncNow)
    for count in range(3):
        assert len(played.did(do.Flush)) == count + 1
        played.event(on_.NotFlushed(played.did(do.Flush)[-1].flush, "gone", died=True), now=100.0)
        if count < 2:
            assert played.at()[0] is not LifeStage.UP, "the loss of its link was not heard yet"
            if played.at()[0] is LifeStage.FIND_LATER:
                played.answer(on_.Due)
            played.answer(on_.Runs, on_.Linked)
            played.hear(on_.BridgeHello)
    assert played.outcome(ask) == "sync_failed"


def test_a_sync_that_dies_while_its_session_starts_again_follows_the_start() -> None:
    played = Played().alive()
    ask = played.ask(on_.SyncNow)
    played.hear(on_.LinkLost, now=100.0)
    played.event(on_.NotFlushed(played.did(do.Flush)[0].flush, "gone", died=True))
    played.answer(on_.DoesNotRun, on_.Stopped)
    assert played.at()[0] is LifeStage.QUEUED, "one sandbox is enough for both"
    played.start()
    played.event(on_.Flushed(played.did(do.Flush)[-1].flush))
    assert played.outcome(ask) == "ok"


def test_a_sync_that_fails_or_is_refused_or_replaced_files_says_so() -> None:
    played = Played().alive()
    failed, refused, replaced = (played.ask(on_.SyncNow) for _ in range(3))
    first, second, third = (flush.flush for flush in played.did(do.Flush))
    played.event(on_.NotFlushed(first, "no room"))
    played.event(on_.NotFlushed(second, "not now", refused=True))
    played.event(on_.Flushed(third, replaced=True))
    assert [played.outcome(ask) for ask in (failed, refused, replaced)] == ["sync_failed", "not_synced", "sync_failed"]
    played.event(on_.SyncNow(0))
    played.event(on_.Flushed(played.did(do.Flush)[-1].flush))
    assert played.last == (), "nobody waits for it"
