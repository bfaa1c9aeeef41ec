"""How a sandbox stops, in the reverse order of its start: the agent ends, the workspace is synced, the sandbox stops;
and how a session is deleted after that. Pure.

While a sync fails the sandbox stays, unless its workspace is above its bound: only the owner can change that, and the
disk stays as it is.
"""

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import agent
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.events import (
    AgentExited,
    AgentReady,
    ArchivedWritten,
    BridgeHello,
    Destroyed,
    DoesNotRun,
    Due,
    Facts,
    Failure,
    GreetingDone,
    LinkLost,
    Lulled,
    Overfull,
    Stopped,
    StoreSilent,
    Unavailable,
    WorkspaceKept,
)
from gateway.session.sandbox.lifecycle.finding import find
from gateway.session.sandbox.lifecycle.life import STARTABLE, UNAVAILABLE, AgentPhase, Life, LifeStage

STOPPED = "the sandbox was stopped"


def begin_stop(
    life: Life, to: SessionStatus, why: str = "", asks: tuple[int, ...] = (), *, by_idle: bool = False
) -> None:
    life.to, life.why, life.asks, life.by_idle, life.again = to, why, asks, by_idle, False
    life.was_up = life.stage is not LifeStage.REST
    agent.cancel_restart(life)
    if life.stage is not LifeStage.UP:
        _keep(life)
    elif to is SessionStatus.ARCHIVED:
        _end_agent(life)
    else:  # the last sync can only follow the running one: everything else waits for that
        life.wait(LifeStage.LULLING, do.Lull(life.next()))


def lulled(life: Life, event: Lulled, facts: Facts) -> None:
    if life.by_idle and (facts.waiting or not facts.idle):
        _stay(life, facts)
    else:
        _end_agent(life)


def _end_agent(life: Life) -> None:
    if life.agent is not AgentPhase.NONE:
        life.effects.append(do.TellAgentToStop(life.link))
    if life.agent is AgentPhase.ALIVE:
        life.wait(LifeStage.ENDING, do.Schedule(life.next(), life.limits.stop_seconds))
    else:
        _keep(life)


def agent_ended(life: Life, event: AgentExited | Due, facts: Facts) -> None:
    """The agent has ended, or its time is over: the freeze ends the remaining programs."""
    life.agent = AgentPhase.NONE
    if isinstance(event, AgentExited):
        life.effects.append(do.Cancel(life.awaited))
    _keep(life)


def lost_while_ending(life: Life, event: LinkLost, facts: Facts) -> None:
    life.effects.append(do.Cancel(life.awaited))
    lost_while_stopping(life, event, facts)
    _keep(life)


def lost_while_stopping(life: Life, event: LinkLost, facts: Facts) -> None:
    """The stop goes on without a link; if the sandbox stays after all, it is found again."""
    life.effects.append(do.CutSync())
    life.drop_link()


def hello_while_stopping(life: Life, event: BridgeHello, facts: Facts) -> None:
    if event.held:
        life.drop_link()
    else:
        life.effects += [do.MarkProven(), do.HearHello(life.link)]


def greeted_while_stopping(life: Life, event: GreetingDone, facts: Facts) -> None:
    """Note whether an agent runs; none may start between the last scan and the end."""
    agent.greet(life, alive=event.alive)


def ready_while_stopping(life: Life, event: AgentReady, facts: Facts) -> None:
    life.agent = AgentPhase.ALIVE


def exited_while_stopping(life: Life, event: AgentExited, facts: Facts) -> None:
    life.agent, life.closing = AgentPhase.NONE, False


def exited_while_lulling(life: Life, event: AgentExited, facts: Facts) -> None:
    """The agent ended by itself: if the sandbox stays after all, an agent that crashed is started again."""
    crashed = event.code != 0 and not life.closing
    exited_while_stopping(life, event, facts)
    if crashed:
        life.patience.failed(facts.now)
        life.wanted = not life.patience.exhausted(facts.now)
        if not life.wanted:
            agent.give_up(life, event.reason)


def _keep(life: Life) -> None:
    """A deleted session is not synced, nor is a clean one, which has no unstored changes."""
    if life.to is SessionStatus.ARCHIVED or not life.unkept:
        _stop(life)
    else:
        life.wait(LifeStage.KEEPING, do.Keep(life.next()))


def kept(life: Life, event: WorkspaceKept, facts: Facts) -> None:
    life.clean, life.overfull = event.remembered, False
    _stop(life)


def vanished(life: Life, event: DoesNotRun, facts: Facts) -> None:
    """The sandbox ended by itself: its files are stored later."""
    _stop(life)


def overfull(life: Life, event: Overfull, facts: Facts) -> None:
    life.clean, life.overfull = False, True
    if life.to is not SessionStatus.ERROR:
        life.why = event.reason
    life.effects.append(do.PauseSync())  # the next sync would fail anyway: the bridge is gone
    _stop(life)


def not_kept(life: Life, event: Failure, facts: Facts) -> None:
    _refuse(life, event, "sync_failed", f"the sandbox stays, because its workspace could not be stored: {event.reason}")
    _stay(life, facts, thaw=life.stage is LifeStage.KEEPING)


def give_up_stop(life: Life, facts: Facts) -> None:
    """No request waits for the stop any more. If an agent was asked to end, its end is no crash."""
    life.effects.append(do.Cancel(life.awaited))
    life.closing = life.stage is LifeStage.ENDING
    _stay(life, facts, thaw=life.stage is LifeStage.KEEPING)


def _stop(life: Life) -> None:
    life.drop_link()
    life.wait(LifeStage.STOPPING, do.StopSandbox(life.next()))


def not_stopped(life: Life, event: Failure, facts: Facts) -> None:
    """The sandbox goes on, and so may its programs; the last sync is not final."""
    life.clean = False
    _refuse(life, event, "not_stopped", f"the sandbox could not be stopped: {event.reason}")
    _stay(life, facts, thaw=True)


def _stay(life: Life, facts: Facts, *, thaw: bool = False) -> None:
    life.reviving = False
    if thaw:
        life.effects.append(do.Thaw())
    if life.link:
        life.settle(LifeStage.UP)
        if life.agent is AgentPhase.NONE and (life.wanted or facts.waiting):
            agent.start_agent(life, facts)
    elif life.was_up:
        find(life)
    else:
        life.again = facts.waiting and life.status in STARTABLE
        life.settle(LifeStage.REST)


def stopped(life: Life, event: Stopped, facts: Facts) -> None:
    life.effects += [do.EndSync(), do.ForgetUnsure(life.why or STOPPED)]
    life.wanted = False
    life.become(life.to, life.why)
    if life.to is SessionStatus.ARCHIVED:
        life.wait(LifeStage.ARCHIVING, do.WriteArchived(life.next()))
        return
    life.again = facts.waiting and life.to is SessionStatus.SLEEPING
    life.settle(LifeStage.REST)
    life.answer()


def archived(life: Life, event: ArchivedWritten, facts: Facts) -> None:
    life.wait(LifeStage.DESTROYING, do.Destroy(life.next()))


def not_archived(life: Life, event: StoreSilent, facts: Facts) -> None:
    life.reviving = False
    life.settle(LifeStage.REST)
    life.refuse("storage_unavailable", "the store has not confirmed yet that the session is archived: try again")


def not_destroyed(life: Life, event: Failure, facts: Facts) -> None:
    life.reviving = False
    life.settle(LifeStage.REST)
    _refuse(life, event, "not_destroyed", f"not all of the session is removed: {event.reason}: delete it again")


def _refuse(life: Life, event: Failure, code: str, text: str) -> None:
    if isinstance(event, Unavailable):
        code, text = "sandbox_unavailable", UNAVAILABLE.format(event.reason)
    life.refuse(code, text)


def destroyed(life: Life, event: Destroyed, facts: Facts) -> None:
    life.clean, life.overfull, life.has_workspace = True, False, False
    life.save()
    life.effects.append(do.DiscardWindow())
    life.settle(LifeStage.REST)
    if life.reviving:
        revive(life)
    life.answer()


def revive(life: Life) -> None:
    """The conversation goes on with a new workspace."""
    life.reviving, life.again = False, True
    life.patience.renew()
    life.become(SessionStatus.SLEEPING)
