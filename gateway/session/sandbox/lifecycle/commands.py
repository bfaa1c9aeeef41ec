"""Commands: each is refused when it arrives, waits in the line, or is performed. Pure.

A command is judged twice. When it arrives it is refused if it makes no sense in the present state. By the time its turn
comes, later events may have overtaken it: then it is answered with the present state. `archived` overtakes all others,
`paused` overtakes `sleep` and `wake`; a delete goes before every waiting command.
"""

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import agent, linked
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle.clearing import clear
from gateway.session.sandbox.lifecycle.events import (
    Delete,
    DialRefused,
    Facts,
    LifeCommand,
    LinkLost,
    Pause,
    PutBack,
    Resume,
    Revive,
    Sleep,
    SyncNow,
    Wake,
    Withdraw,
)
from gateway.session.sandbox.lifecycle.finding import find, find_unsurveyed, lost
from gateway.session.sandbox.lifecycle.life import FAILED, LINE, STARTABLE, UNAVAILABLE, After, Life, LifeStage
from gateway.session.sandbox.lifecycle.starting import begin_start
from gateway.session.sandbox.lifecycle.stopping import begin_stop, give_up_stop, revive
from gateway.session.sandbox.lifecycle.visiting import NOT_PAUSED, begin_put_back, begin_visit, give_up_visit

ARCHIVED = ("archived", "the session is archived: create it again to revive its conversation")
PAUSED = ("paused", "the session is paused: POST .../resume")
NOT_RUNNING = ("paused", "the session is paused: its sandbox does not run")
UNRESTORED = ("unrestored", "the workspace is not restored, so it may not be synced: wake the session")
KEEP_WHAT = ("not_unrestored", "keep is for a session that cannot be restored: it keeps the files on the disk")
EMPTY_WHAT = ("not_unrestored", "empty is for a session that cannot be restored or started")
BUSY = ("busy", f"{LINE} requests wait for this session already: try again when they are answered")
SESSION_FAILED = ("session_failed", "the session has ended here: try again")
LEAVING = ("draining", "the gateway is shutting down: try again in a few seconds")
NO_HELLO = "its bridge closed the link before it had said hello"
STOPPING = (LifeStage.LULLING, LifeStage.ENDING, LifeStage.KEEPING)


def check(life: Life, command: LifeCommand, facts: Facts) -> tuple[str, str] | None:
    """Return the code and text of its refusal in the present state; None if it is admitted."""
    refusal = _no_sense(life, command, facts)
    full = len(life.line) + len(life.flushes) >= LINE and not isinstance(command, Delete)
    return BUSY if refusal is None and full else refusal


def _no_sense(life: Life, command: LifeCommand, facts: Facts) -> tuple[str, str] | None:
    if isinstance(command, Delete | Revive):
        return None
    if life.status is SessionStatus.ARCHIVED:
        return ARCHIVED
    match command:
        case Wake() if life.status is SessionStatus.PAUSED:
            return PAUSED
        case Sleep() if life.status is SessionStatus.PAUSED:
            return NOT_RUNNING
        case Resume() if refusal := _no_resume(life, command):
            return refusal
        case SyncNow() if life.status is SessionStatus.UNRESTORED:
            return UNRESTORED
        case PutBack() if life.status is not SessionStatus.PAUSED:
            return ("not_paused", "a workspace is replaced in place only while its session is paused")
    if facts.full and not life.placed and _starts_one(life, command):
        return ("too_many_running", facts.full)
    return None


def _no_resume(life: Life, command: Resume) -> tuple[str, str] | None:
    if command.keep and life.status is not SessionStatus.UNRESTORED:
        return KEEP_WHAT
    return EMPTY_WHAT if command.empty and life.status not in FAILED else None


def _starts_one(life: Life, command: LifeCommand) -> bool:
    return isinstance(command, Wake | Resume) or (isinstance(command, SyncNow | PutBack) and life.unkept)


def _admitted(life: Life, command: LifeCommand, facts: Facts) -> bool:
    """True if the command may wait or be performed; otherwise refuse it."""
    refusal = check(life, command, facts)
    if refusal is not None:
        life.refuse(*refusal, [command.ask] if command.ask else [])
    elif isinstance(command, Delete):
        life.effects.append(do.EndSync())  # who keeps it just now need not go on
    return refusal is None


def _is_deleted(life: Life) -> bool:
    """True also for a session whose delete waits or is under way."""
    due = any(isinstance(command, Delete) for command in life.line)
    return due or life.status is SessionStatus.ARCHIVED or (life.stopping and life.to is SessionStatus.ARCHIVED)


def come(life: Life, command: LifeCommand, facts: Facts) -> None:
    """Put a command in the line. It is performed at once if no operation is under way."""
    if isinstance(command, Revive) and not _is_deleted(life):
        life.effects.append(do.Answer(command.ask))  # another create came first: do not wait for the start
    elif _admitted(life, command, facts):
        life.line_up([command], first=isinstance(command, Delete))


def stop_before_turn(life: Life, command: LifeCommand, facts: Facts) -> None:
    """A stop while a start waits for its turn: answer the waiting requests with the present state, and let the stop go
    first."""
    if _admitted(life, command, facts):
        life.effects.append(do.Cancel(life.awaited))
        life.awaited = 0
        if life.stage is LifeStage.QUEUED:  # else a sandbox may run, and its files are stored first
            life.answer()
            life.stage = LifeStage.REST
        life.line_up([command], first=True)


def stop_fetching(life: Life, command: LifeCommand, facts: Facts) -> None:
    """A stop while the start's image is being fetched. No sandbox runs: answer the waiting requests with the present
    state, and let the stop go first. The image may have arrived this very moment, so the sandbox is cleared away all
    the same."""
    if _admitted(life, command, facts):
        life.effects.append(do.Cancel(life.awaited))
        life.answer()
        life.line_up([command], first=True)
        life.incarnation -= 1
        clear(life, After.GIVEN_UP, SessionStatus.SLEEPING, "")


def go_before_visit(life: Life, command: LifeCommand, facts: Facts) -> None:
    """A stop need not wait for the visit. A start takes the place that both would need, and the sync follows it."""
    if _admitted(life, command, facts):
        give_up_visit(life)
        life.settle(LifeStage.REST)
        life.line_up([command], first=True)


def find_for(life: Life, command: LifeCommand, facts: Facts) -> None:
    """A command waits: look for the sandbox now."""
    come(life, command, facts)
    if life.line:
        life.effects.append(do.Cancel(life.awaited))
        find(life)


def clear_for(life: Life, command: LifeCommand, facts: Facts) -> None:
    come(life, command, facts)
    if life.line:
        life.effects.append(do.Cancel(life.awaited))
        life.wait(LifeStage.CLEARING, do.StopSandbox(life.next()))


def lost_before_hello(life: Life, event: LinkLost, facts: Facts) -> None:
    lost(life, event, facts)
    _go_without_link(life, NO_HELLO, facts)


def not_surveyed(life: Life, event: DialRefused, facts: Facts) -> None:
    if find_unsurveyed(life):
        _go_without_link(life, event.reason, facts)


def _go_without_link(life: Life, why: str, facts: Facts) -> None:
    """The next link may be lost as this one was, so refuse the commands that need one. Stops and syncs need none."""
    waiting, life.line[:] = life.line[:], []
    for command in waiting:
        if isinstance(command, Sleep | Pause | Delete):
            life.line.append(command)
        elif isinstance(command, SyncNow):
            linked.flush(life, command)
        else:
            life.refuse("sandbox_unavailable", UNAVAILABLE.format(why), [command.ask])
    if life.line:
        life.effects.append(do.Cancel(life.awaited))
        take(life, life.line.pop(0), facts)


def take(life: Life, command: LifeCommand, facts: Facts) -> None:
    """Perform a command whose turn has come: no operation is under way."""
    asks = (command.ask,) if command.ask else ()
    match command:
        case Wake() | Resume():
            _take_start(life, command, asks, facts)
        case Sleep() if life.status not in (SessionStatus.PAUSED, SessionStatus.ARCHIVED):
            begin_stop(life, SessionStatus.SLEEPING, asks=asks)
        case Pause() if life.status is not SessionStatus.ARCHIVED:
            begin_stop(life, SessionStatus.PAUSED, asks=asks)
        case Delete() if life.status is not SessionStatus.ARCHIVED or life.leaves_something:
            begin_stop(life, SessionStatus.ARCHIVED, asks=asks)
        case Revive() if life.status is SessionStatus.ARCHIVED:
            life.reviving = life.leaves_something
            if life.reviving:  # the last delete failed
                begin_stop(life, SessionStatus.ARCHIVED, asks=asks)
            else:
                revive(life)
                life.effects += [do.Answer(ask) for ask in asks]
        case SyncNow() if life.stage is LifeStage.UP:
            linked.flush(life, command)
        case SyncNow() if life.status in (SessionStatus.ARCHIVED, SessionStatus.UNRESTORED):
            why = f"the session is {life.status}, so its workspace may not be synced"
            life.refuse("not_synced", why, asks)
        case SyncNow() if life.unkept:
            begin_visit(life, asks)
        case PutBack() if life.status is not SessionStatus.PAUSED:
            life.refuse("not_paused", NOT_PAUSED, asks)
        case PutBack() if life.unkept:
            begin_visit(life, asks, command)
        case PutBack():
            begin_put_back(life, command, facts)
        case _:  # overtaken, or done already
            life.effects += [do.Answer(ask) for ask in asks]


def _take_start(life: Life, command: Wake | Resume, asks: tuple[int, ...], facts: Facts) -> None:
    resumes = isinstance(command, Resume)
    if life.status is SessionStatus.ARCHIVED or (life.status is SessionStatus.PAUSED and not resumes):
        life.effects += [do.Answer(ask) for ask in asks]
        return
    life.patience.renew()
    if life.stage is LifeStage.UP:
        agent.cancel_restart(life)
        linked.run_agent(life, facts)
        life.effects += [do.Answer(ask) for ask in asks]
        return
    if not isinstance(command, Resume):
        begin_start(life, asks, by_name=True)
    elif refusal := _no_resume(life, command):
        life.refuse(*refusal, asks)
    else:
        if life.status in (SessionStatus.PAUSED, SessionStatus.NEEDS_ENV):
            life.become(SessionStatus.SLEEPING)
        begin_start(life, asks, empty=command.empty, keep=command.keep, by_name=True)


def go_on(life: Life, facts: Facts) -> None:
    """If no operation is under way, take the next command, or start again. A start goes before a sync: one sandbox is
    enough for both."""
    while not life.awaited and life.stage in (LifeStage.REST, LifeStage.UP, LifeStage.FIND_QUEUED):
        starts = life.again and life.stage is LifeStage.REST
        if starts and (not life.line or isinstance(life.line[0], SyncNow)):
            life.again = False
            if life.status in STARTABLE and not life.patience.exhausted(facts.now):
                begin_start(life)
        elif life.line:
            take(life, life.line.pop(0), facts)
        else:
            break


def withdraw(life: Life, event: Withdraw, facts: Facts) -> None:
    life.line[:] = [command for command in life.line if command.ask != event.ask]
    for number, command in life.flushes.items():
        if command.ask == event.ask:
            life.flushes[number] = SyncNow(0, command.attempt)
    if event.ask in life.asks:
        life.asks = tuple(ask for ask in life.asks if ask != event.ask)
        life.put_back = None
        if life.stage in STOPPING and life.to is not SessionStatus.ARCHIVED:
            give_up_stop(life, facts)


def sync_while_leaving(life: Life, command: SyncNow, facts: Facts) -> None:
    if life.status is SessionStatus.RUNNING and len(life.flushes) < LINE:
        linked.flush(life, command)
    else:
        refuse_leaving(life, command, facts)


def refuse_leaving(life: Life, command: LifeCommand, facts: Facts) -> None:
    life.refuse(*LEAVING, [command.ask] if command.ask else [])


def refuse_ended(life: Life, command: LifeCommand, facts: Facts) -> None:
    life.refuse(*SESSION_FAILED, [command.ask] if command.ask else [])
