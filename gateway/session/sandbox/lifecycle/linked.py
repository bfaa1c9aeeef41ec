"""Steps for events of a link while no operation is under way, for intent then, and for syncs, which run beside.
Pure."""

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import agent
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.events import (
    AgentExited,
    AgentProblem,
    AgentReady,
    BridgeHello,
    EndAgent,
    Event,
    Facts,
    Flushed,
    GreetingDone,
    LinkLost,
    NotFlushed,
    SyncNow,
)
from gateway.session.sandbox.lifecycle.finding import greet, lost
from gateway.session.sandbox.lifecycle.life import AgentPhase, Life, LifeStage

HELD_AGAIN = "the bridge holds an agent that was released"
REPLACED = (
    "its sandbox ended and most of its files were gone: the newest generation was restored, and the files that were "
    "left are beside it"
)
KEEPS = 3  # sandboxes that may die during one requested sync


def hello(life: Life, event: BridgeHello, facts: Facts) -> None:
    if event.held:
        lost(life, LinkLost(event.link, HELD_AGAIN), facts)
    else:
        greet(life)


def greeted(life: Life, event: GreetingDone, facts: Facts) -> None:
    agent.greet(life, alive=event.alive)
    if life.agent is AgentPhase.NONE and (life.wanted or facts.waiting):
        agent.start_agent(life, facts)


def agent_ready(life: Life, event: AgentReady, facts: Facts) -> None:
    life.agent = AgentPhase.ALIVE


def agent_exited(life: Life, event: AgentExited, facts: Facts) -> None:
    asked_for = life.closing
    life.agent, life.closing = AgentPhase.NONE, False
    if not asked_for and event.code != 0:
        _crashed(life, event.reason, facts)
    elif facts.waiting or life.wanted:
        agent.restart_later(life, facts)


def problem(life: Life, event: AgentProblem, facts: Facts) -> None:
    failed = life.agent is AgentPhase.STARTING
    agent.problem(life, event, facts)
    if failed:
        _crashed(life, event.reason, facts)


def _crashed(life: Life, reason: str, facts: Facts) -> None:
    life.patience.failed(facts.now)
    if life.patience.exhausted(facts.now):
        agent.give_up(life, reason)
    else:
        agent.restart_later(life, facts)


def want(life: Life, event: Event, facts: Facts) -> None:
    """There is a link: start an agent if none runs, unless it was given up or is about to be tried."""
    if life.agent is AgentPhase.ALIVE and not facts.exit_due:
        return
    if not life.restart and not life.patience.exhausted(facts.now):
        run_agent(life, facts)


def run_agent(life: Life, facts: Facts) -> None:
    if life.status is not SessionStatus.RUNNING:
        life.become(SessionStatus.RUNNING)
    agent.start_agent(life, facts)


def end_agent(life: Life, event: EndAgent, facts: Facts) -> None:
    if life.agent is AgentPhase.ALIVE:
        life.closing = True
        life.effects.append(do.TellAgentToStop(life.link))


def flush(life: Life, command: SyncNow) -> None:
    number = life.next()
    life.flushes[number] = command
    life.effects.append(do.Flush(number))


def flushed(life: Life, event: Flushed, facts: Facts) -> None:
    command = life.flushes.pop(event.flush)
    if event.replaced:
        _not_synced(life, command, REPLACED)
    elif command.ask:
        life.effects.append(do.Answer(command.ask))


def not_flushed(life: Life, event: NotFlushed, facts: Facts) -> None:
    """A sandbox died under a sync: sync once more, with its leftovers or with the next sandbox."""
    command = life.flushes.pop(event.flush)
    tries = command.attempt + 1 < KEEPS and life.stage not in (LifeStage.LEFT, LifeStage.ENDED)
    if event.died and tries:
        life.line_up([SyncNow(command.ask, command.attempt + 1)], first=True)
        if life.stage is LifeStage.UP:  # the loss of its link is not known yet
            lost(life, LinkLost(life.link, event.reason), facts)
    elif event.refused:
        life.refuse("not_synced", event.reason, _who(command))
    else:
        _not_synced(life, command, event.reason)


def _not_synced(life: Life, command: SyncNow, reason: str) -> None:
    life.refuse("sync_failed", f"the workspace could not be stored: {reason}", _who(command))


def _who(command: SyncNow) -> list[int]:
    return [command.ask] if command.ask else []
