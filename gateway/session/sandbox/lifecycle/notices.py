"""Steps for events that are no commands: a message needs an agent, time has passed, the session was loaded, the gateway
leaves. Pure.
"""

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import agent
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.clearing import clear
from gateway.session.sandbox.lifecycle.commands import LEAVING, SESSION_FAILED
from gateway.session.sandbox.lifecycle.events import EnvGiven, Event, Facts, Idle, Notice, Rescue, SessionLoaded
from gateway.session.sandbox.lifecycle.finding import find_after_load
from gateway.session.sandbox.lifecycle.life import STARTABLE, After, Life, LifeStage
from gateway.session.sandbox.lifecycle.starting import begin_start
from gateway.session.sandbox.lifecycle.stopping import begin_stop
from gateway.session.sandbox.lifecycle.visiting import begin_visit, give_up_visit


def _may_start(life: Life, facts: Facts) -> bool:
    return life.status in STARTABLE and not life.restart and not life.patience.exhausted(facts.now)


def want(life: Life, event: Event, facts: Facts) -> None:
    if _may_start(life, facts):
        begin_start(life)


def want_before_visit(life: Life, event: Event, facts: Facts) -> None:
    if _may_start(life, facts):
        give_up_visit(life)
        begin_start(life)


def want_agent_then(life: Life, event: Notice, facts: Facts) -> None:
    """The sandbox is being started or found: start an agent once it is there."""
    life.wanted = True


def want_again(life: Life, event: Notice, facts: Facts) -> None:
    """An operation works on the session's disk: start the sandbox when it is over."""
    life.wanted, life.again = True, life.again or life.status in STARTABLE


def env_given(life: Life, event: EnvGiven, facts: Facts) -> None:
    if life.status is SessionStatus.NEEDS_ENV:
        life.become(SessionStatus.SLEEPING)


def idle(life: Life, event: Idle, facts: Facts) -> None:
    """A failed session keeps its status and reason; its sandbox stops like any other's."""
    if facts.idle and not facts.waiting:
        failed = life.status is SessionStatus.ERROR
        to, why = (SessionStatus.ERROR, life.reason) if failed else (SessionStatus.SLEEPING, "idle")
        begin_stop(life, to, why, by_idle=True)


def rescue(life: Life, event: Rescue, facts: Facts) -> None:
    """A workspace above its bound is not rescued: it waits for its owner."""
    ended = life.status not in (SessionStatus.ARCHIVED, SessionStatus.UNRESTORED)
    if ended and life.unkept and not life.overfull and facts.now >= life.rescue_at:
        begin_visit(life)


def loaded(life: Life, event: SessionLoaded, facts: Facts) -> None:
    running = life.status in (SessionStatus.RUNNING, SessionStatus.STARTING)
    if running or (event.runs and life.status is SessionStatus.ERROR):
        find_after_load(life)
    elif event.runs:
        clear(life, After.LEFTOVER, life.status, life.reason)
    elif facts.waiting:
        want(life, event, facts)


# -- the end -----------------------------------------------------------------------------------------------------------


def leave(life: Life, event: Notice, facts: Facts) -> None:
    """The sandbox stays, and syncs go on for a while. The next gateway finds the operation that is under way."""
    if life.stage in (LifeStage.KEEPING, LifeStage.STOPPING):
        life.effects.append(do.Thaw())
    _let_go(life, LifeStage.LEFT, LEAVING)


def end(life: Life, event: Notice, facts: Facts) -> None:
    """The sandbox, its disk and its generations may be another gateway's: perform no effect from here on."""
    life.refuse(*SESSION_FAILED, [command.ask for command in life.flushes.values() if command.ask])
    life.flushes.clear()
    _let_go(life, LifeStage.ENDED, SESSION_FAILED)


def _let_go(life: Life, stage: LifeStage, why: tuple[str, str]) -> None:
    if life.awaited:
        life.effects.append(do.Cancel(life.awaited))
    agent.cancel_restart(life)
    life.drop_link()
    life.refuse_line(*why)
    life.again = life.wanted = life.reviving = False
    life.put_back = life.trouble = None
    life.settle(stage)
