"""How a sandbox starts: a turn, the newest generation, the sandbox with its agent held, its workspace, and only then
the agent. Pure.
"""

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import agent
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.clearing import STORE_AWAY, clear, clear_later, unanswered
from gateway.session.sandbox.lifecycle.events import (
    AgentReleased,
    Facts,
    Failure,
    ImageAwaited,
    ImageFetched,
    Linked,
    Looked,
    Prepared,
    RestoredUnseen,
    SandboxStarted,
    StartFailed,
    StoreSilent,
    TurnGiven,
    Unavailable,
    Unrestorable,
)
from gateway.session.sandbox.lifecycle.life import After, Life, LifeStage

NEEDS_ENV = "its envVars are gone with the last gateway: resume with {envVars}"


def begin_start(
    life: Life, asks: tuple[int, ...] = (), *, empty: bool = False, keep: bool = False, by_name: bool = False
) -> None:
    agent.cancel_restart(life)
    life.asks, life.empty, life.keep, life.by_name, life.again = asks, empty, keep, by_name, False
    life.wait(LifeStage.QUEUED, do.AskTurn(life.next()))


def turn_given(life: Life, event: TurnGiven, facts: Facts) -> None:
    life.turn = event.number
    if facts.forbidden or facts.lacks_env:
        if facts.forbidden:
            life.become(SessionStatus.ERROR, facts.forbidden)
            life.effects.append(do.TellError("network_not_allowed", facts.forbidden))
        else:
            life.become(SessionStatus.NEEDS_ENV, NEEDS_ENV)
        life.settle(LifeStage.REST)
        life.answer()
        return
    life.incarnation += 1
    life.become(SessionStatus.STARTING)
    if life.empty:
        _start(life)
    else:
        life.wait(LifeStage.LOOKING, do.LookForNewest(life.next(), life.keep))


def looked(life: Life, event: Looked, facts: Facts) -> None:
    _start(life)


def _start(life: Life) -> None:
    life.effects.append(do.EndSync())  # of the previous sandbox
    life.wait(LifeStage.STARTING, do.StartHeld(life.next(), life.incarnation, life.empty, life.keep))


def image_awaited(life: Life, event: ImageAwaited, facts: Facts) -> None:
    """A pull may take long, so it holds no turn."""
    life.end_turn()
    life.stage = LifeStage.FETCHING


def image_fetched(life: Life, event: ImageFetched, facts: Facts) -> None:
    life.stage = LifeStage.STARTING


def started(life: Life, event: SandboxStarted, facts: Facts) -> None:
    life.end_turn()  # a long restore holds no turn
    life.wait(LifeStage.PREPARING, do.Prepare(life.next(), life.empty, life.keep))


def prepared(life: Life, event: Prepared, facts: Facts) -> None:
    """The workspace is proven. From here on the disk may be ahead of the store, and the state records that before it is
    so."""
    life.clean, life.overfull, life.has_workspace, life.attempts = False, False, True, 0
    life.wait(LifeStage.RELEASING, do.Release(life.next(), life.by_name))


def restored_unseen(life: Life, event: RestoredUnseen, facts: Facts) -> None:
    """The agent of this sandbox was not released: a new sandbox takes its place, and sees the restored files. It holds
    no turn, like the restore: there are never many of those at once."""
    life.incarnation += 1
    life.save()
    life.wait(LifeStage.STARTING, do.StartHeld(life.next(), life.incarnation))


def released(life: Life, event: AgentReleased, facts: Facts) -> None:
    life.wait(LifeStage.CONNECTING, do.Connect(life.next()))


def connected(life: Life, event: Linked, facts: Facts) -> None:
    life.link, life.greeted, life.linked_at, life.wanted = event.number, False, facts.now, True
    life.become(SessionStatus.RUNNING)
    life.settle(LifeStage.UP)
    life.answer()


def not_restored(life: Life, event: Unrestorable, facts: Facts) -> None:
    clear(life, After.FAILED, SessionStatus.UNRESTORED, event.reason)


def start_failed(life: Life, event: Failure, facts: Facts) -> None:
    if isinstance(event, StartFailed) and event.bug:
        life.trouble = ("start_failed", event.reason)
    clear(life, After.FAILED, SessionStatus.ERROR, event.reason)


def not_written(life: Life, event: StoreSilent, facts: Facts) -> None:
    life.trouble = ("storage_unavailable", f"{STORE_AWAY}: try again in a moment")
    clear(life, After.UNWRITTEN, SessionStatus.SLEEPING, STORE_AWAY)


def start_unanswered(life: Life, event: Unavailable, facts: Facts) -> None:
    """The sandbox may have started. Its agent was not released: it is stopped when the provider answers, and started
    again. So this start does not count: a first start may begin while the object store is away, a later one may not."""
    life.incarnation -= 1
    life.end_turn()
    prepare_unanswered(life, event, facts)


def prepare_unanswered(life: Life, event: Unavailable, facts: Facts) -> None:
    """It is unknown what the workspace holds, and whether the agent was released. The agent has been given nothing yet,
    so the next start goes on with the disk."""
    unanswered(life, event)
    clear_later(life, event, facts)


def connect_unanswered(life: Life, event: Unavailable, facts: Facts) -> None:
    """The agent was released: the sandbox runs, and is found again."""
    life.become(SessionStatus.RUNNING, event.reason)
    life.wanted, life.loading = True, False
    life.refuse_unavailable(event.reason)
    life.attempts += 1
    life.wait(LifeStage.FIND_LATER, do.Schedule(life.next(), 1.0))
