"""How a sandbox stops, what may overtake that, and how a session is deleted."""

import pytest

from gateway.session.model.state import SessionStatus as Status
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import AgentPhase, LifeStage
from tests.support.lives import LIMITS, Played


def pausing(*, up_to: LifeStage = LifeStage.KEEPING) -> tuple[Played, int]:
    played = Played().alive()
    ask = played.ask(on_.Pause)
    if up_to is not LifeStage.LULLING:
        played.answer(on_.Lulled)
    if up_to is LifeStage.KEEPING:
        played.hear(on_.AgentExited)
    assert played.at()[0] is up_to
    return played, ask


def test_the_agent_ends_then_its_work_is_kept_then_the_sandbox_stops() -> None:
    played, ask = pausing(up_to=LifeStage.LULLING)
    assert not played.did(do.TellAgentToStop), "nothing is stopped before its turn has come"
    played.answer(on_.Lulled)
    assert played.did(do.TellAgentToStop)
    assert not played.did(do.Keep)
    played.hear(on_.AgentExited)
    assert played.now_does(do.Keep)
    assert not played.did(do.StopSandbox)
    played.answer(on_.WorkspaceKept)
    assert [type(effect) for effect in played.last] == [do.DropLink, do.StopSandbox]
    assert played.outcome(ask) is None
    played.answer(on_.Stopped)
    assert (played.at(), played.life.clean, played.outcome(ask)) == ((LifeStage.REST, Status.PAUSED), True, "ok")
    assert played.life.connection == "sleeping"


def test_a_pause_that_cannot_wait_for_a_sync_has_stopped_nothing() -> None:
    played, ask = pausing(up_to=LifeStage.LULLING)
    played.answer(on_.NotKept, reason="try again when it is over")
    assert (played.outcome(ask), played.life.stage, played.life.agent) == (
        "sync_failed",
        LifeStage.UP,
        AgentPhase.ALIVE,
    )
    assert not [kind for kind in (do.TellAgentToStop, do.Thaw, do.StopSandbox) if played.did(kind)]


@pytest.mark.parametrize("why", [on_.NotKept, on_.Unavailable])
def test_what_cannot_be_kept_is_not_stopped_and_may_be_used_again(why: type[on_.Failure]) -> None:
    played, ask = pausing()
    played.answer(why, reason="not now", facts={"waiting": True})
    code = "sync_failed" if why is on_.NotKept else "sandbox_unavailable"
    assert (played.outcome(ask), played.at()) == (code, (LifeStage.UP, Status.RUNNING))
    assert [type(effect) for effect in played.last if type(effect) in (do.Thaw, do.StartAgent)] == [
        do.Thaw,
        do.StartAgent,
    ]
    assert not played.did(do.StopSandbox)


def test_what_is_more_than_may_be_kept_is_stopped_and_stays_on_its_disk() -> None:
    played, ask = pausing()
    played.answer(on_.Overfull, reason="too large")
    played.answer(on_.Stopped)
    assert (played.at(), played.outcome(ask)) == ((LifeStage.REST, Status.PAUSED), "ok")
    assert (played.life.clean, played.life.overfull, played.life.reason) == (False, True, "too large")
    played.event(on_.Rescue())
    assert played.at()[0] is LifeStage.REST, "it waits for its owner"


def test_a_session_that_failed_keeps_saying_why_when_it_is_stopped() -> None:
    for overfull in (False, True):
        played = Played().alive()
        played.life.status, played.life.reason = Status.ERROR, "it crashed"
        played.event(on_.Idle(), idle=True)
        played.answer(on_.Lulled, facts={"idle": True})
        played.hear(on_.AgentExited)
        played.answer(on_.Overfull if overfull else on_.WorkspaceKept)
        played.answer(on_.Stopped)
        assert (played.at(), played.life.reason) == ((LifeStage.REST, Status.ERROR), "it crashed")


def test_a_sandbox_that_ended_while_it_was_stopped_leaves_something() -> None:
    played, _ = pausing()
    played.hear(on_.LinkLost)
    assert played.now_does(do.CutSync)
    played.answer(on_.DoesNotRun, on_.Stopped)
    assert (played.at(), played.life.unkept) == ((LifeStage.REST, Status.PAUSED), True)


@pytest.mark.parametrize("why", [on_.NotStopped, on_.Unavailable])
def test_a_sandbox_that_cannot_be_stopped_is_found_again(why: type[on_.Failure]) -> None:
    played, ask = pausing()
    played.answer(on_.WorkspaceKept)
    played.answer(why, reason="injected")
    code = "not_stopped" if why is on_.NotStopped else "sandbox_unavailable"
    assert (played.outcome(ask), played.at()) == (code, (LifeStage.ASKING, Status.RUNNING))
    assert played.did(do.Thaw)
    assert not played.life.clean, "its programs may write again"
    played.answer(on_.Runs, on_.Linked)
    played.hear(on_.BridgeHello, waiting=True)
    assert played.now_does(do.StartAgent)


def test_what_is_asleep_already_and_cannot_be_asked_stays_asleep() -> None:
    played = Played(incarnation=1, clean=True)
    ask = played.ask(on_.Pause)
    assert played.at()[0] is LifeStage.STOPPING, "it is clean: nothing is to be kept"
    played.answer(on_.Unavailable, reason="away")
    assert (played.outcome(ask), played.at()) == ("sandbox_unavailable", (LifeStage.REST, Status.SLEEPING))


def test_no_agent_starts_between_the_last_scan_and_the_end() -> None:
    """A wake, and a sleep before its hello has come."""
    played = Played()
    wake = played.ask(on_.Wake)
    sleep = played.ask(on_.Sleep)
    assert (played.outcome(wake), played.life.stage) == ("ok", LifeStage.STOPPING), "it waited for its turn"
    played.answer(on_.Stopped)
    wake = played.ask(on_.Wake)
    played.answer(on_.TurnGiven)
    second = played.ask(on_.Sleep)
    played.answer(on_.Looked, on_.SandboxStarted, on_.Prepared, on_.AgentReleased, on_.Linked)
    assert played.at()[0] is LifeStage.LULLING
    played.hear(on_.BridgeHello)
    played.answer(on_.Lulled)
    played.hear(on_.BridgeHello)
    played.hear(on_.AgentProblem, given={"reason": "no such program"})
    played.event(on_.AgentWanted())
    played.answer(on_.WorkspaceKept, on_.Stopped)
    assert [played.outcome(ask) for ask in (wake, sleep, second)] == ["ok"] * 3
    assert not played.did(do.StartAgent)
    assert played.at() == (LifeStage.REST, Status.SLEEPING)


def test_an_agent_that_does_not_end_has_its_time_and_no_more() -> None:
    played, _ = pausing(up_to=LifeStage.ENDING)
    played.answer(on_.Due)
    assert played.at()[0] is LifeStage.KEEPING


def test_an_agent_whose_link_is_lost_is_not_waited_for() -> None:
    played, _ = pausing(up_to=LifeStage.ENDING)
    timer = played.life.awaited
    played.hear(on_.LinkLost)
    assert played.at()[0] is LifeStage.KEEPING
    assert do.Cancel(timer) in played.last


def test_an_agent_that_is_about_to_start_is_told_and_not_waited_for() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.start()
    played.hear(on_.BridgeHello)
    played.ask(on_.Sleep)
    played.answer(on_.Lulled)
    assert (played.life.stage, len(played.did(do.TellAgentToStop))) == (LifeStage.KEEPING, 1)
    played.hear(on_.AgentReady)
    assert (played.life.agent, played.life.link > 0) == (AgentPhase.ALIVE, True)
    played.hear(on_.AgentExited)
    assert (played.life.agent, played.life.link > 0) == (AgentPhase.NONE, True)


def test_a_hello_heard_while_it_stops_is_noted() -> None:
    played = Played()
    played.event(on_.AgentWanted())
    played.start()
    played.ask(on_.Sleep)
    played.hear(on_.BridgeHello, given={"alive": True})
    assert (played.life.greeted, played.life.agent) == (True, AgentPhase.STARTING)
    played.hear(on_.AgentReady)
    played.hear(on_.GreetingDone, given={"alive": True})
    assert played.life.agent is AgentPhase.ALIVE
    played.hear(on_.BridgeHello, given={"held": True})
    assert not played.life.link, "it is found again if it stays"
    played.answer(on_.NotKept)
    assert played.at()[0] is LifeStage.ASKING


def test_a_message_that_comes_before_an_idle_session_is_stopped_keeps_it_awake() -> None:
    for facts in ({"waiting": True, "idle": True}, {"idle": False}):
        played = Played().alive()
        played.event(on_.Idle(), idle=True)
        assert played.at()[0] is LifeStage.LULLING
        played.answer(on_.Lulled, facts=facts)
        assert (played.life.stage, played.life.agent) == (LifeStage.UP, AgentPhase.ALIVE)
        assert not played.did(do.TellAgentToStop)


def test_what_waits_when_it_sleeps_wakes_it_again() -> None:
    played = Played().alive()
    played.ask(on_.Sleep)
    played.answer(on_.Lulled)
    played.hear(on_.AgentExited)
    played.answer(on_.WorkspaceKept)
    played.answer(on_.Stopped, facts={"waiting": True})
    assert played.at()[0] is LifeStage.QUEUED


def test_what_waits_when_it_is_paused_does_not() -> None:
    played, _ = pausing()
    played.answer(on_.WorkspaceKept)
    played.answer(on_.Stopped, facts={"waiting": True})
    assert played.at() == (LifeStage.REST, Status.PAUSED)


@pytest.mark.parametrize("first", [on_.Pause, on_.Delete])
def test_what_is_archived_or_paused_while_somebody_waits_to_put_it_to_sleep_stays_so(
    first: type[on_.LifeCommand],
) -> None:
    played = Played().alive()
    asks = [played.ask(first), played.ask(on_.Sleep), played.ask(on_.Wake)]
    if first is on_.Pause:
        asks.append(played.ask(on_.Pause))
        played.stop()
        played.answer(on_.Stopped)  # clean already: the second pause has nothing to keep
    else:
        played.hear(on_.AgentExited)
        played.answer(on_.Stopped, on_.ArchivedWritten, on_.Destroyed)
    assert played.at() == (LifeStage.REST, Status.PAUSED if first is on_.Pause else Status.ARCHIVED)
    assert [played.outcome(ask) for ask in asks] == ["ok"] * len(asks)


def test_nothing_is_destroyed_before_it_is_durable_that_the_session_is_archived() -> None:
    played = Played().alive()
    ask = played.ask(on_.Delete)
    played.hear(on_.AgentExited)
    assert not played.did(do.Keep), "what is deleted is not kept"
    played.answer(on_.Stopped)
    assert played.at() == (LifeStage.ARCHIVING, Status.ARCHIVED)
    assert not played.did(do.Destroy)
    played.answer(on_.ArchivedWritten)
    assert played.now_does(do.Destroy)
    assert played.outcome(ask) is None
    played.answer(on_.Destroyed)
    assert played.now_does(do.DiscardWindow)
    assert (played.outcome(ask), played.life.leaves_something) == ("ok", False)
    assert played.outcome(played.ask(on_.Delete)) == "ok", "nothing is left"


def test_a_delete_that_failed_halfway_can_be_asked_for_again() -> None:
    played = Played().alive()
    asks = [played.ask(on_.Delete)]
    played.hear(on_.AgentExited)
    played.answer(on_.Stopped, on_.StoreSilent)
    asks.append(played.ask(on_.Delete))
    played.answer(on_.Stopped, on_.ArchivedWritten)
    played.answer(on_.NotDestroyed, reason="away")
    asks.append(played.ask(on_.Delete))
    played.answer(on_.Stopped, on_.ArchivedWritten)
    played.answer(on_.Unavailable, reason="away")
    asks.append(played.ask(on_.Delete))
    played.answer(on_.Stopped, on_.ArchivedWritten, on_.Destroyed)
    said = [played.outcome(ask) for ask in asks]
    assert said == ["storage_unavailable", "not_destroyed", "sandbox_unavailable", "ok"]


def test_what_a_half_deleted_session_had_is_gone_when_it_is_created_again() -> None:
    played = Played(status=Status.ARCHIVED, has_workspace=True, incarnation=1)
    failed = played.ask(on_.Revive)
    played.answer(on_.Stopped, on_.ArchivedWritten)
    played.answer(on_.NotDestroyed, reason="away")
    assert (played.outcome(failed), played.life.status) == ("not_destroyed", Status.ARCHIVED)
    ask = played.ask(on_.Revive)
    played.answer(on_.Stopped, on_.ArchivedWritten, on_.Destroyed)
    assert (played.outcome(ask), played.at()) == ("ok", (LifeStage.QUEUED, Status.SLEEPING))


def test_a_delete_makes_whoever_keeps_it_give_up_and_goes_first() -> None:
    played, pause = pausing()
    sleep, delete = played.ask(on_.Sleep), played.ask(on_.Delete)
    assert played.now_does(do.EndSync)
    played.answer(on_.NotKept, reason="deleted")
    assert (played.outcome(pause), played.life.to) == ("sync_failed", Status.ARCHIVED)
    played.answer(on_.Stopped, on_.ArchivedWritten, on_.Destroyed)
    assert (played.outcome(sleep), played.outcome(delete), played.life.status) == ("ok", "ok", Status.ARCHIVED)


@pytest.mark.parametrize("at", [LifeStage.LULLING, LifeStage.ENDING, LifeStage.KEEPING])
def test_a_pause_that_is_given_up_leaves_no_sandbox_held(at: LifeStage) -> None:
    played, ask = pausing(up_to=at)
    awaited = played.life.awaited
    played.event(on_.Withdraw(ask), waiting=True)
    assert do.Cancel(awaited) in played.last
    assert played.now_does(do.Thaw) is (at is LifeStage.KEEPING)
    assert (played.at(), played.outcome(ask)) == ((LifeStage.UP, Status.RUNNING), None)


def test_a_pause_of_what_is_to_be_found_again_keeps_what_was_written() -> None:
    played = Played(status=Status.RUNNING, incarnation=1)
    played.event(on_.SessionLoaded(True))
    turn = played.life.awaited
    ask = played.ask(on_.Pause)
    assert do.Cancel(turn) in played.last
    assert played.at()[0] is LifeStage.KEEPING
    played.answer(on_.NotKept, reason="not now")
    assert (played.outcome(ask), played.life.stage) == ("sync_failed", LifeStage.ASKING)


def test_an_agent_that_crashes_while_a_pause_waits_for_a_sync_is_started_again_if_the_pause_is_given_up() -> None:
    for code, starts in ((0, 1), (1, 2)):
        played = Played().alive()
        pause = played.ask(on_.Pause)
        played.hear(on_.AgentExited, given={"code": code})
        played.event(on_.Withdraw(pause))
        assert played.at()[0] is LifeStage.UP
        assert len(played.did(do.StartAgent)) == starts


def test_an_agent_that_crashes_again_and_again_is_given_up_also_while_a_pause_waits() -> None:
    played = Played().alive()
    for _ in range(LIMITS.crashes):
        pause = played.ask(on_.Pause)
        played.hear(on_.AgentExited, given={"code": 1, "reason": "it crashed"})
        played.event(on_.Withdraw(pause))
        if played.life.agent is AgentPhase.STARTING:
            played.hear(on_.AgentReady)
    assert played.at() == (LifeStage.UP, Status.ERROR)
    assert played.did(do.TellError)[-1].code == "crash_loop"


def test_an_agent_that_was_told_to_end_for_a_stop_that_was_given_up_has_not_crashed() -> None:
    """Five withdrawn pauses were five crashes, and the session became `error`."""
    played, ask = pausing(up_to=LifeStage.ENDING)
    for _ in range(LIMITS.crashes):
        played.event(on_.Withdraw(ask))
        assert played.life.stage is LifeStage.UP
        played.hear(on_.AgentExited, given={"code": None, "reason": "killed by SIGTERM"})
        played.event(on_.RestartDue(played.life.restart))
        played.hear(on_.AgentReady)
        ask = played.ask(on_.Pause)
        played.answer(on_.Lulled)
    assert played.at() == (LifeStage.ENDING, Status.RUNNING)
    assert not played.life.patience.exhausted(0.0)
