"""The agent of a sandbox that runs: started, started again after a pause, given up. Pure."""

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.events import AgentProblem, Facts
from gateway.session.sandbox.lifecycle.life import AgentPhase, Life


def greet(life: Life, *, alive: bool) -> None:
    """The link's hello is processed. An agent that runs will be announced in a moment, or was already."""
    life.greeted = True
    if alive:
        life.wanted = False
        life.agent = AgentPhase.STARTING if life.agent is AgentPhase.NONE else life.agent


def start_agent(life: Life, facts: Facts) -> None:
    """Start an agent if none runs; not before it is known whether one runs."""
    if not life.greeted or facts.exit_due:
        life.wanted = True
    elif life.agent is AgentPhase.NONE:
        life.wanted, life.agent = False, AgentPhase.STARTING
        life.effects.append(do.StartAgent(life.link))


def problem(life: Life, event: AgentProblem, facts: Facts) -> None:
    """The agent could not be started. The caller, which starts or keeps its sandbox, checks whether an agent is still
    wanted."""
    life.effects.append(do.TellError("agent", event.reason))
    if life.agent is AgentPhase.STARTING:
        life.agent = AgentPhase.NONE


def restart_later(life: Life, facts: Facts) -> None:
    if not life.restart and not life.patience.exhausted(facts.now):
        life.restart = life.next()
        life.effects.append(do.ScheduleRestart(life.restart, life.patience.pause(life.rng)))


def cancel_restart(life: Life) -> None:
    if life.restart:
        life.effects.append(do.Cancel(life.restart))
        life.restart = 0


def give_up(life: Life, reason: str) -> None:
    """The agent failed too often: it is not started again until a command asks for it, or the window has passed."""
    count, minutes = life.limits.crashes, life.limits.crash_window / 60
    text = f"crashed {count} times in {minutes:g} minutes (last: {reason}). Fix the cause, then wake the session"
    life.become(SessionStatus.ERROR, text)
    life.effects.append(do.TellError("crash_loop", text))
