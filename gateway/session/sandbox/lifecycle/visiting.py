"""Visits store the files that an ended sandbox left on its disk: it is started once more with its agent held, its
workspace is synced, and it is stopped. The status does not change. Pure.
"""

from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.clearing import clear_later
from gateway.session.sandbox.lifecycle.events import (
    Facts,
    Failure,
    Looked,
    NotPutInPlace,
    Overfull,
    OwnerConfirmed,
    Prepared,
    PutBack,
    PutInPlace,
    SandboxStarted,
    Stopped,
    StoreSilent,
    SyncNow,
    TurnGiven,
    WorkspaceKept,
)
from gateway.session.sandbox.lifecycle.life import After, Life, LifeStage
from gateway.session.sandbox.lifecycle.linked import REPLACED
from persistence.backoff import delay

NOT_PAUSED = "the session is not paused any more: pause it and try again"
RESCUE_BASE, RESCUE_CAP = 5.0, 300.0  # seconds between two attempts to rescue a sandbox's files


def begin_visit(life: Life, asks: tuple[int, ...] = (), put_back: PutBack | None = None) -> None:
    life.asks, life.put_back, life.trouble = asks, put_back, None
    life.wait(LifeStage.VISIT_QUEUED, do.AskTurn(life.next(), visit=True))


def give_up_visit(life: Life) -> None:
    """Another operation goes first: the visit's commands wait in the line again."""
    life.effects.append(do.Cancel(life.awaited))
    waiting = [life.put_back] if life.put_back is not None else [SyncNow(ask) for ask in life.asks]
    life.asks, life.put_back = (), None
    life.line_up(waiting, first=True)


def turn_given(life: Life, event: TurnGiven, facts: Facts) -> None:
    life.turn = event.number
    life.incarnation += 1
    life.save()
    life.wait(LifeStage.VISIT_LOOKING, do.LookForNewest(life.next()))


def looked(life: Life, event: Looked, facts: Facts) -> None:
    life.effects.append(do.EndSync())  # of the previous sandbox, with its pending requests
    life.wait(LifeStage.VISIT_STARTING, do.StartHeld(life.next(), life.incarnation, visit=True))


def started(life: Life, event: SandboxStarted, facts: Facts) -> None:
    life.wait(LifeStage.VISIT_PREPARING, do.Prepare(life.next(), visit=True))


def prepared(life: Life, event: Prepared, facts: Facts) -> None:
    life.wait(LifeStage.VISIT_KEEPING, do.Keep(life.next(), visit=True))


def kept(life: Life, event: WorkspaceKept, facts: Facts) -> None:
    if event.replaced:
        life.trouble = ("sync_failed", REPLACED)
    life.clean, life.overfull = event.remembered, False
    life.save()
    _stop(life)


def overfull(life: Life, event: Overfull, facts: Facts) -> None:
    life.overfull = True
    life.save()
    failed(life, event, facts)


def failed(life: Life, event: Failure, facts: Facts) -> None:
    """The visit failed: no program ran in the sandbox, and it is stopped all the same."""
    reason = getattr(event, "reason", "its sandbox ended")
    life.trouble = ("sync_failed", f"the workspace could not be stored: {reason}")
    _stop(life)


def _stop(life: Life) -> None:
    life.effects.append(do.EndSync())
    life.wait(LifeStage.VISIT_STOPPING, do.StopSandbox(life.next()))


def not_stopped(life: Life, event: Failure, facts: Facts) -> None:
    """The sandbox still runs, with its agent held: its last sync stays true."""
    life.after, life.put_back = After.VISITED, None
    life.end_turn()
    clear_later(life, event, facts)


def stopped(life: Life, event: Stopped, facts: Facts) -> None:
    if life.trouble is None:
        life.rescues = 0
    else:
        life.rescue_at = facts.now + delay(life.rescues, life.rng, base=RESCUE_BASE, cap=RESCUE_CAP)
        life.rescues += 1
    trouble, life.trouble = life.trouble, None
    life.settle(LifeStage.REST)
    if trouble is not None:
        life.put_back = None
        life.refuse(*trouble)
    elif life.put_back is not None:
        begin_put_back(life, life.put_back, facts)
    else:
        life.answer()


def begin_put_back(life: Life, command: PutBack, facts: Facts) -> None:
    """Unreadable files are not stored, and stay on the disk: the next start puts them aside."""
    life.put_back, life.asks = command, (command.ask,)
    if life.clean or facts.unread:  # another gateway may have taken the session unnoticed
        life.wait(LifeStage.CONFIRMING, do.ConfirmOwner(life.next()))
    else:
        life.put_back = None
        life.refuse("not_paused", NOT_PAUSED)


def confirmed(life: Life, event: OwnerConfirmed, facts: Facts) -> None:
    command, life.put_back = life.put_back, None
    if command is None:  # the request has been withdrawn
        life.settle(LifeStage.REST)
    else:
        life.wait(LifeStage.PUTTING_BACK, do.PutBackGeneration(life.next(), command.generation))


def not_confirmed(life: Life, event: StoreSilent, facts: Facts) -> None:
    life.put_back = None
    life.settle(LifeStage.REST)
    life.refuse("storage_unavailable", "nothing was put back, because the store does not answer: try again")


def put_in_place(life: Life, event: PutInPlace, facts: Facts) -> None:
    life.clean = True
    life.save()
    life.settle(LifeStage.REST)
    life.answer()


def not_put_in_place(life: Life, event: NotPutInPlace, facts: Facts) -> None:
    life.settle(LifeStage.REST)
    life.refuse("not_put_back", event.reason)
