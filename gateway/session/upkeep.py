"""Operations of the registry, reaper, reattach and drain on a loaded session: take it up for its creator, find its
sandbox, put it to sleep, rescue its files, leave it.
"""

from dataclasses import replace
from typing import Any

from msgspec import structs

from gateway.agents import status
from gateway.session.actor import SessionActor
from gateway.session.model.idle_policy import Idleness
from gateway.session.model.state import SessionSpec, SessionStatus, Wish, spec_members
from gateway.session.recording.recorder import secrets_in_url
from gateway.session.sandbox.lifecycle import events as on_
from persistence.record import Outcome, Session


def seen(actor: SessionActor, kept: Session | None) -> Session:
    """The session as readers see it; `kept` is the stored one, None while the store is away."""
    if kept is None:
        return actor.conversation.seen()
    return structs.replace(kept, last_seq=max(kept.last_seq, actor.conversation.last_durable))


def waiting(actor: SessionActor) -> tuple[int, int]:
    """The number of undelivered messages, and their bytes."""
    window = actor.delivery.window
    return len(window), window.queued_bytes


def quiet(actor: SessionActor) -> bool:
    """True if every posted event, and all received output of the agent, has been processed."""
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
    """The session's agent: its name, version and model, and its present state."""
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


def reconfigure(actor: SessionActor, config: dict[str, Any]) -> None:
    """A configuration of the session's own, in place of the one it has. An agent that is idle ends: the next one gets
    it. Called in the session's task."""
    if actor.conversation.spec.config == config:
        return
    actor.conversation.change_spec({"config": config})
    if actor.output.agent_alive and not actor.output.answering:
        actor.life.on(on_.EndAgent())


def begin(actor: SessionActor, *, since: float | None) -> None:
    """The session was loaded: find the sandbox that should run, or start one for waiting messages. `since`: when the
    gateway began to look for older sandboxes, while it still looks."""
    actor.inbox.deal(actor.life.loaded, since)


def found_running(actor: SessionActor, *, since: float | None) -> None:
    """Its sandbox runs, from before this gateway. One that should sleep is stopped: its gateway died while it put it to
    sleep."""
    actor.post(actor.life.found_running, since)


def sleep_if_idle(actor: SessionActor) -> None:
    """Put the session to sleep if it is still idle when its turn to be stopped comes. A failed session keeps its status
    and reason; its sandbox stops like any other's."""
    actor.post(actor.life.on, on_.Idle())


def rescue(actor: SessionActor) -> None:
    """Store the files that its last sandbox left, as soon as that is possible."""
    actor.post(actor.life.on, on_.Rescue())


def settled(actor: SessionActor, seq: int, outcome: Outcome) -> None:
    """The store has decided about a record that was durable here first."""
    actor.post(actor.incoming.settled, seq, outcome)


def say_goodbye(actor: SessionActor, retry_after: float) -> None:
    """The gateway leaves: stop reading viewers, and send them the time to come back. Frames read before are still
    processed. The next gateway relays the agent's later output: if it were stored here, viewers would come back to find
    it in history only."""
    actor.post(actor.viewers.say_goodbye, retry_after)
    actor.post(actor.life.on, on_.Leave())


async def take_up(actor: SessionActor, wish: Wish) -> bool:
    """The session's creator asks for it, for the first time or again: have its agent run. An archived session comes
    back. Return True if something was changed that must become durable. Raises ApiError."""
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
    """True if the wish changes nothing about the network. A session without network gets a clone made outside, so there
    the repository's URL counts as part of it."""
    return wish.network == spec.network and (spec.network != "none" or wish.repo_url == spec.repo_url)


async def _revive(actor: SessionActor, wish: Wish) -> None:
    """An archived session is created again: the conversation goes on, the workspace is new. The idle time stays unless
    the wish names one."""
    log = actor.conversation
    if log.state.leaves_something:  # the last delete failed
        await actor.life.ask(on_.Delete)
    wish = replace(wish, sleep_after=wish.sleep_after or log.spec.sleep_after)
    await actor.sharing.end_all()
    actor.host.hide(*secrets_in_url(wish.repo_url or ""))  # before the post: a recording contains posted values
    actor.post(log.change_spec, spec_members(wish, actor.host.limits.network.given))
    await actor.life.ask(on_.Revive)
