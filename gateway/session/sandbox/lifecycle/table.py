"""A session's life: the operation on its sandbox, the events that may come then, and the effects that follow. Pure.

The *status* is stored and shown: sleeping, starting, running, paused, error, unrestored, needs_env, archived. The
*stage* is the operation that is under way; it is never stored, because a new gateway finds out for itself how far the
operations of a dead one came. No operation is under way in `rest` (no sandbox runs, as far as is known) and in `up`
(there is a link).

    start   queued > looking > starting (> fetching > starting) > preparing > releasing > connecting > up
    find    find_queued > asking > linking > greeting (> surveying) > up; find_later is a pause before the next attempt
    stop    lulling > ending > keeping > stopping > rest
    delete  ending > stopping > archiving > destroying > rest
    visit   visit_queued > _looking > _starting > _preparing > _keeping > _stopping > rest
    put     (visit >) confirming > putting_back > rest
    clear   clearing > rest; clear_later is a pause before the next attempt
    left    the gateway leaves: only syncs go on.      ended   another gateway has the session, or it failed.

An *event* is a command (its request waits for an answer), a notice, the answer of an effect, or an event of a link. The
table has one step for each possible pair of stage and event. `on` applies it and returns *effects*, which the caller
must perform. At most one effect is awaited. Each has a number, and its answer carries it: the answer of an effect that
was given up is late, and is dropped by its number; a turn or a link that comes late is given back. A pair that is not
in the table cannot occur: it is a bug of the caller, raises `ImpossibleEvent`, and the life is unchanged.

The promises, and how each is kept:

*No program runs unrestored.* `Release` is made in one place, `prepared`, which only `Prepared` leads to. Every start
begins with the agent held. A sandbox whose programs would not see the restored files is replaced by a new one
(`restored_unseen`), and prepared once more: from `preparing` back to `starting`. A sandbox that is found held is
stopped (`still_held`): the state of its disk is unknown. A *visit* starts a stopped sandbox with its agent held, to
sync its leftovers, and stops it again.

*A sandbox is not stopped before its workspace is stored.* A sandbox whose agent was released is stopped after
`WorkspaceKept`, or after `Overfull` (its disk stays as it is, and only its owner can help), or when it has ended by
itself, or when it cannot be reached: it refuses its link directly after its start, or `link_attempts` times in a row
later. A bridge that reports that its agent is held, and does not answer questions about its workspace, counts as one
that refuses. If the sync fails, the sandbox stays, its programs may start again, and the request is refused. A deleted
workspace is not synced.

*Unknown is not dead.* `Unavailable` never stops a sandbox whose agent was released. The same question is asked again
later. Waiting requests are refused at once: a new one asks again at once.

*Nothing is destroyed before `archived` is durable.* `Destroy` is made in one place, which only `ArchivedWritten` leads
to. *A gateway that lost the session puts nothing back.* `PutBackGeneration` is made in one place, which only
`OwnerConfirmed` leads to: the store has just taken a write of this gateway.

*A sandbox declared dead is dead.* A failed start, a sandbox that is gone and one that was held go through `clearing`:
the status changes after `Stopped`, never before.

*A stop need not wait for an image.* A start whose image is being fetched holds no turn, and a stop gives it up
(`stop_fetching`); a sandbox that the fetch started in that very moment goes through `clearing`.

*One operation at a time.* Only `wait` begins an operation, and it replaces the awaited effect. Commands that come
meanwhile wait in the line, at most LINE of them, and are judged again when their turn has come: `archived` overtakes
all others, `paused` overtakes sleep and wake. A delete goes before every waiting command. While a session waits for a
turn no operation is under way: a stop goes first and gives the turn up. A start takes the place of a visit that waits
for its turn. A sync of a running sandbox goes on beside other operations; if its sandbox dies, it is attempted again,
KEEPS times in all.

*Each request gets an answer, once.* A request is in the line, in `asks`, or in `flushes`, in one of them at a time.
Each way to rest or up answers or refuses `asks`. The line moves at rest and up, and when a link is lost before its
hello: stops and syncs need no link, the others are refused. `end` refuses every request, `leave` every one but those
that wait for a sync.

*A wanted start is tried again.* A sandbox that died is started at once. An agent that ended and a start that failed
wait, with growing pauses. After `crashes` crashes in `crash_window` seconds no start is tried until a command asks for
it or the window has passed.
"""

from collections.abc import Callable
from typing import Any

from gateway.session.sandbox.lifecycle import (
    agent,
    clearing,
    commands,
    effects,
    finding,
    linked,
    notices,
    starting,
    stopping,
    visiting,
)
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import Life, LifeStage

Step = Callable[[Life, Any, on_.Facts], None]
Row = dict[type, Step]


class ImpossibleEvent(Exception):
    """An event that cannot happen at this stage: a bug of the caller."""


def ignore(life: Life, event: on_.Event, facts: on_.Facts) -> None:
    """The event may come, and has no effect at this stage."""


ANYWHERE: Row = {
    on_.Withdraw: commands.withdraw,
    on_.EnvGiven: notices.env_given,
    on_.EndAgent: ignore,
    on_.Idle: ignore,
    on_.Rescue: ignore,
    on_.SessionLoaded: ignore,
    on_.Leave: notices.leave,
    on_.End: notices.end,
    on_.Flushed: linked.flushed,
    on_.NotFlushed: linked.not_flushed,
}


def _asked(start: Step, stop: Step, other: Step = commands.come) -> Row:
    starts = dict.fromkeys((on_.Wake, on_.Resume), start)
    stops = dict.fromkeys((on_.Sleep, on_.Pause, on_.Delete), stop)
    return ANYWHERE | starts | stops | dict.fromkeys((on_.SyncNow, on_.PutBack, on_.Revive), other)


def _wanted(step: Step) -> Row:
    return {on_.AgentWanted: step, on_.RestartDue: step}


LINES_UP = _asked(commands.come, commands.come)
STARTS = LINES_UP | _wanted(notices.want_agent_then)
FINDS = STARTS
STOPS = LINES_UP | _wanted(ignore)  # if messages wait then, it is started again
VISITS = LINES_UP | _wanted(notices.want_again)
CLEARS = VISITS
SILENT: Row = {
    on_.GreetingDone: ignore,
    on_.AgentReady: linked.agent_ready,
    on_.AgentExited: ignore,
    on_.AgentProblem: agent.problem,
}
LINKED_STOPS: Row = {
    on_.BridgeHello: stopping.hello_while_stopping,
    on_.GreetingDone: stopping.greeted_while_stopping,
    on_.LinkLost: stopping.lost_while_stopping,
    on_.AgentReady: stopping.ready_while_stopping,
    on_.AgentExited: stopping.exited_while_stopping,
    on_.AgentProblem: agent.problem,
}
START_FAILS: Row = {on_.StartFailed: starting.start_failed, on_.Unrestorable: starting.not_restored}
VISIT_FAILS: Row = {
    on_.StartFailed: visiting.failed,
    on_.Unrestorable: visiting.failed,
    on_.Unavailable: visiting.failed,
}

# One block, one stage. An event that is not listed cannot occur there.
TABLE: dict[LifeStage, Row] = {
    LifeStage.REST: LINES_UP | _wanted(notices.want) | {on_.Rescue: notices.rescue, on_.SessionLoaded: notices.loaded},
    LifeStage.UP: LINES_UP
    | _wanted(linked.want)
    | {
        on_.EndAgent: linked.end_agent,
        on_.Idle: notices.idle,
        on_.BridgeHello: linked.hello,
        on_.GreetingDone: linked.greeted,
        on_.LinkLost: finding.lost,
        on_.AgentReady: linked.agent_ready,
        on_.AgentExited: linked.agent_exited,
        on_.AgentProblem: linked.problem,
    },
    #
    LifeStage.QUEUED: _asked(commands.come, commands.stop_before_turn)
    | _wanted(ignore)
    | {on_.TurnGiven: starting.turn_given},
    LifeStage.LOOKING: STARTS | START_FAILS | {on_.Looked: starting.looked},
    LifeStage.STARTING: STARTS
    | START_FAILS
    | {
        on_.ImageAwaited: starting.image_awaited,
        on_.SandboxStarted: starting.started,
        on_.Unavailable: starting.start_unanswered,
    },
    LifeStage.FETCHING: _asked(commands.come, commands.stop_fetching)
    | _wanted(notices.want_agent_then)
    | START_FAILS
    | {on_.ImageFetched: starting.image_fetched, on_.Unavailable: starting.start_unanswered},
    LifeStage.PREPARING: STARTS
    | START_FAILS
    | {
        on_.Prepared: starting.prepared,
        on_.RestoredUnseen: starting.restored_unseen,
        on_.Unavailable: starting.prepare_unanswered,
    },
    LifeStage.RELEASING: STARTS
    | START_FAILS
    | {
        on_.AgentReleased: starting.released,
        on_.StoreSilent: starting.not_written,
        on_.Unavailable: starting.prepare_unanswered,
    },
    LifeStage.CONNECTING: STARTS
    | {
        on_.Linked: starting.connected,
        on_.DialRefused: starting.start_failed,
        on_.Unavailable: starting.connect_unanswered,
    },
    #
    LifeStage.FIND_QUEUED: _asked(commands.come, commands.stop_before_turn)
    | _wanted(notices.want_agent_then)
    | {on_.TurnGiven: finding.find_turn_given},
    LifeStage.ASKING: FINDS
    | {on_.Runs: finding.runs, on_.DoesNotRun: finding.does_not_run, on_.Unavailable: finding.unanswered},
    LifeStage.LINKING: FINDS
    | {on_.Linked: finding.found, on_.DialRefused: finding.refused, on_.Unavailable: finding.unanswered},
    LifeStage.GREETING: FINDS | SILENT | {on_.BridgeHello: finding.greeting, on_.LinkLost: commands.lost_before_hello},
    LifeStage.SURVEYING: FINDS
    | SILENT
    | {
        on_.BridgeHello: ignore,
        on_.LinkLost: commands.lost_before_hello,
        on_.DialRefused: commands.not_surveyed,
        on_.LetGo: finding.let_go,
        on_.StillHeld: finding.still_held,
        on_.Unavailable: finding.unanswered,
    },
    LifeStage.FIND_LATER: _asked(commands.find_for, commands.find_for, commands.find_for)
    | _wanted(notices.want_agent_then)
    | {on_.Due: finding.find_now},
    #
    LifeStage.LULLING: STOPS
    | LINKED_STOPS
    | {
        on_.AgentExited: stopping.exited_while_lulling,
        on_.Lulled: stopping.lulled,
        on_.NotKept: stopping.not_kept,
    },
    LifeStage.ENDING: STOPS
    | LINKED_STOPS
    | {
        on_.AgentExited: stopping.agent_ended,
        on_.LinkLost: stopping.lost_while_ending,
        on_.Due: stopping.agent_ended,
    },
    LifeStage.KEEPING: STOPS
    | LINKED_STOPS
    | {
        on_.WorkspaceKept: stopping.kept,
        on_.DoesNotRun: stopping.vanished,
        on_.Overfull: stopping.overfull,
        on_.NotKept: stopping.not_kept,
        on_.Unavailable: stopping.not_kept,
    },
    LifeStage.STOPPING: STOPS
    | {
        on_.Stopped: stopping.stopped,
        on_.NotStopped: stopping.not_stopped,
        on_.Unavailable: stopping.not_stopped,
    },
    LifeStage.ARCHIVING: STOPS | {on_.ArchivedWritten: stopping.archived, on_.StoreSilent: stopping.not_archived},
    LifeStage.DESTROYING: STOPS
    | {
        on_.Destroyed: stopping.destroyed,
        on_.NotDestroyed: stopping.not_destroyed,
        on_.Unavailable: stopping.not_destroyed,
    },
    #
    LifeStage.VISIT_QUEUED: _asked(commands.go_before_visit, commands.go_before_visit)
    | _wanted(notices.want_before_visit)
    | {on_.TurnGiven: visiting.turn_given},
    LifeStage.VISIT_LOOKING: VISITS | VISIT_FAILS | {on_.Looked: visiting.looked},
    LifeStage.VISIT_STARTING: VISITS
    | VISIT_FAILS
    | {on_.ImageAwaited: ignore, on_.ImageFetched: ignore, on_.SandboxStarted: visiting.started},
    LifeStage.VISIT_PREPARING: VISITS | VISIT_FAILS | {on_.Prepared: visiting.prepared},
    LifeStage.VISIT_KEEPING: VISITS
    | {
        on_.WorkspaceKept: visiting.kept,
        on_.Overfull: visiting.overfull,
        on_.NotKept: visiting.failed,
        on_.DoesNotRun: visiting.failed,
        on_.Unavailable: visiting.failed,
    },
    LifeStage.VISIT_STOPPING: VISITS
    | {
        on_.Stopped: visiting.stopped,
        on_.NotStopped: visiting.not_stopped,
        on_.Unavailable: visiting.not_stopped,
    },
    LifeStage.CONFIRMING: VISITS | {on_.OwnerConfirmed: visiting.confirmed, on_.StoreSilent: visiting.not_confirmed},
    LifeStage.PUTTING_BACK: VISITS
    | {on_.PutInPlace: visiting.put_in_place, on_.NotPutInPlace: visiting.not_put_in_place},
    #
    LifeStage.CLEARING: CLEARS
    | {
        on_.Stopped: clearing.cleared,
        on_.NotStopped: clearing.clear_later,
        on_.Unavailable: clearing.clear_later,
    },
    LifeStage.CLEAR_LATER: _asked(commands.clear_for, commands.clear_for, commands.clear_for)
    | _wanted(notices.want_again)
    | {on_.Due: clearing.clear_again},
    #
    LifeStage.LEFT: _asked(commands.refuse_leaving, commands.refuse_leaving, commands.refuse_leaving)
    | _wanted(ignore)
    | {on_.SyncNow: commands.sync_while_leaving, on_.Leave: ignore},
    LifeStage.ENDED: _asked(commands.refuse_ended, commands.refuse_ended, commands.refuse_ended)
    | _wanted(ignore)
    | {on_.Leave: ignore, on_.End: ignore, on_.EnvGiven: ignore},
}


def on(life: Life, event: on_.Event, facts: on_.Facts) -> tuple[effects.Effect, ...]:
    """Apply `event`; return the effects that the caller must perform, in order. Raises ImpossibleEvent, and then
    changes nothing."""
    if isinstance(event, on_.EffectReply) and event.number > life.number:
        raise ImpossibleEvent(f"{type(event).__name__} answers effect {event.number}, and nobody asked for that")
    if is_late(life, event):
        gets = isinstance(event, on_.TurnGiven | on_.Linked)
        return (effects.Cancel(event.number),) if gets and isinstance(event, on_.EffectReply) else ()
    step = TABLE[life.stage].get(type(event))
    if step is None:
        raise ImpossibleEvent(f"{type(event).__name__} in {life.stage}")
    life.effects = []
    if isinstance(event, on_.RestartDue):
        life.restart = 0
    step(life, event, facts)
    commands.go_on(life, facts)
    if (word := life.connection) != life.told:
        life.told = word
        life.effects.append(effects.TellConnection(word))
    done, life.effects = tuple(life.effects), []
    return done


def is_late(life: Life, event: on_.Event) -> bool:
    """True if the event belongs to an effect or a link that was given up."""
    match event:
        case on_.EffectReply():
            return event.number != life.awaited
        case on_.FromLink():
            return event.link != life.link
        case on_.RestartDue():
            return event.number != life.restart
        case on_.Flushed() | on_.NotFlushed():
            return event.flush not in life.flushes
    return False
