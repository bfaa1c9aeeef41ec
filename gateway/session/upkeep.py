"""What registry, reaper, reattach and drain do with a loaded session: take it up for its creator, find its sandbox, put
it to sleep, rescue its files, let it go."""

from dataclasses import replace

from msgspec import structs

from gateway.agents import status
from gateway.session.actor import SessionActor
from gateway.session.model.idle_policy import Idleness
from gateway.session.model.state import SessionSpec, SessionStatus, Wish, spec_members
from gateway.session.recording.recorder import secrets_in_url
from gateway.session.sandbox.lifecycle import events as on_
from persistence.record import Outcome, Session


def seen(actor: SessionActor, kept: Session | None) -> Session:
    """The session as readers see it; `kept` is what the store has of it, None while it cannot be asked."""
    if kept is None:
        return actor.conversation.seen()
    return structs.replace(kept, last_seq=max(kept.last_seq, actor.conversation.last_durable))


def waiting(actor: SessionActor) -> tuple[int, int]:
    """How many messages are not delivered yet, and how many bytes they are."""
    window = actor.delivery.window
    return len(window), window.queued_bytes


def quiet(actor: SessionActor) -> bool:
    """Whether everything that was posted, and everything the agent said that was heard, has been dealt with."""
    return actor.ended or (not actor.inbox.entries and actor.output.settled)


def idleness(actor: SessionActor) -> Idleness:
    state, workspace = actor.conversation.state, actor.workspace
    return Idleness(
        status=state.status,
        seconds=actor.idle_seconds(),
        sleep_after=actor.sleep_after,
        linked=actor.delivery.link is not None,
        busy=actor.life.core.busy,
        bound=workspace.must_stay,
        in_use=actor.viewers.watched or workspace.ready or actor.host.turns.waits(actor.id),
        wants_rescue=state.wants_rescue,
    )


def agent_status(actor: SessionActor) -> dict[str, str | None]:
    """The session's agent: who it is, what it does."""
    spec, output = actor.conversation.spec, actor.output
    starting = actor.life.status is SessionStatus.STARTING
    now = status.state(
        starting=starting,
        alive=output.agent_alive,
        asking=bool(actor.delivery.turns.open),
        retrying=output.answers.retrying,
        answering=output.answering,
    )
    return status.describe(spec.agent_told, now, name=spec.agent_name, mode=spec.mode)


def begin(actor: SessionActor, *, since: float | None) -> None:
    """It was loaded: find the sandbox that should run, or start one for what waits. `since`: when the gateway began to
    look for what ran before it, while it still looks."""
    actor.inbox.deal(actor.life.loaded, since)


def found_running(actor: SessionActor, *, since: float | None) -> None:
    """Its sandbox runs, from before this gateway. One that should sleep is stopped: its gateway died while it put it to
    sleep."""
    actor.post(actor.life.found_running, since)


def sleep_if_idle(actor: SessionActor) -> None:
    """Put it to sleep if nobody comes before its turn to be stopped has come. A session that failed keeps saying why;
    its sandbox stops like any other's."""
    actor.post(actor.life.on, on_.Idle())


def rescue(actor: SessionActor) -> None:
    """Keep what its last sandbox left, as soon as that can be done."""
    actor.post(actor.life.on, on_.Rescue())


def settled(actor: SessionActor, seq: int, outcome: Outcome) -> None:
    """The store says what became of a record that was durable here first."""
    actor.post(actor.incoming.settled, seq, outcome)


def say_goodbye(actor: SessionActor, retry_after: float) -> None:
    """The gateway leaves: read no further, and say when to come back. What was read before is still dealt with. What
    the agent says from here on is the next gateway's to relay: stored here, viewers would come back to find it in
    history only."""
    actor.post(actor.viewers.say_goodbye, retry_after)
    actor.post(actor.life.on, on_.Leave())


async def take_up(actor: SessionActor, wish: Wish) -> bool:
    """Its creator asks for it, for the first time or again: see to it that its agent runs. An archived session comes
    back. Whether something was changed that is to be durable. Raises ApiError."""
    if wish.env:
        actor.give_env(wish.env)
        actor.post(actor.life.on, on_.EnvGiven())
    log, spec = actor.conversation, actor.conversation.spec
    archived = log.state.status is SessionStatus.ARCHIVED
    granted = wish.by_service and not spec.network_granted and _asks_for_what_it_has(wish, spec)
    if archived:
        await _revive(actor, wish)
    elif granted:
        actor.post(log.change_spec, {"network_granted": True})
    await actor.asks.have(actor.post, actor.life.agent_wanted)
    return bool(wish.env) or archived or granted


def _asks_for_what_it_has(wish: Wish, spec: SessionSpec) -> bool:
    """Of the network. A clone outside the sandbox is all that a session with none has of it."""
    return wish.network == spec.network and (spec.network != "none" or wish.repo_url == spec.repo_url)


async def _revive(actor: SessionActor, wish: Wish) -> None:
    """An archived session is created again: the conversation goes on, the workspace is new. The idle time stays unless
    the wish names one."""
    log = actor.conversation
    if log.state.leaves_something:  # the last delete failed
        await actor.life.ask(on_.Delete)
    wish = replace(wish, sleep_after=wish.sleep_after or log.spec.sleep_after)
    await actor.sharing.end_all()
    actor.host.hide(*secrets_in_url(wish.repo_url or ""))  # before the post: a recording has what is posted
    actor.post(log.change_spec, spec_members(wish, actor.host.limits.network.given))
    await actor.life.ask(on_.Revive)
