"""The lifecycle of sessions: create, look at, change, put to sleep, wake, hold, end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import LIFECYCLE, LIFECYCLE_OR_GUEST, LIFECYCLE_SESSION, RoutePolicy
from gateway.egress.budget import Spent
from gateway.egress.spent_json import shown_spent
from gateway.feed.feed import moved_members
from gateway.http.access import note_asked, owned, principal
from gateway.http.concurrency import ConcurrencyLimit
from gateway.http.request_bodies import (
    ChangeBody,
    ResumeBody,
    WakeBody,
    WishBody,
    read_change,
    read_env,
    read_session_config,
    read_user,
    read_wish,
)
from gateway.http.responses import UNCACHED, LongResponse, answer, read_body
from gateway.http.sessions.answers import SessionJson, Sessions
from gateway.protocol.errors import ApiError
from gateway.routing.bodies import given_members
from gateway.routing.json_types import JsonBody, Nothing
from gateway.routing.parameters import USER, FlagParameter
from gateway.routing.route import Declaration, route
from gateway.session.actor import SessionActor
from gateway.session.catalogue import Catalogue
from gateway.session.creation.create import SessionCreation
from gateway.session.registry import SessionRegistry
from gateway.session.upkeep import agent_status, reconfigure
from persistence.errors import StoreUnavailable
from persistence.record import NO_USER
from sandbox.ports.resources import Resources
from sandbox.ports.sandbox import Sandbox, SandboxUnavailable

ONE = "/api/sandboxes/{id}"
RESOURCE_SECONDS = 2.0
LISTS = 2  # at once for each user
WAIT = FlagParameter("wait", "0: do not wait until it is kept", default=True)
PURGE = FlagParameter("purge", "1: the conversation goes, too")
Step = Callable[[SessionActor], Awaitable[dict[str, Any]]]


def _session(
    method: str, path: str, name: str, doc: str, body: type[JsonBody] | None = None, *more: int,
    who: RoutePolicy = LIFECYCLE_SESSION,
) -> Declaration:  # fmt: skip
    """A route that answers the session."""
    refusals = (400, 404, 409, 503, *more)
    return route(method, ONE + path, who, name, doc, body=body, answers={200: SessionJson}, refusals=refusals)


async def _no_troubles(user_id: str) -> dict[str, str]:
    return {}


class SandboxRoutes:
    """`/api/sandboxes`: for owners by their JWT, for services by the relay secret or the API token."""

    def __init__(
        self,
        registry: SessionRegistry,
        catalogue: Catalogue,
        creation: SessionCreation,
        *,
        troubles: Callable[[str], Awaitable[dict[str, str]]] = _no_troubles,
        spent: Callable[[str], Spent] = lambda session_id: Spent(),
    ) -> None:
        """`troubles`: why credentials of a user cannot be used, by provider; `spent`: by a session, on models."""
        self._registry = registry
        self._catalogue = catalogue
        self._creation = creation
        self._troubles = troubles
        self._spent = spent
        self._gates = ConcurrencyLimit(LISTS, "lists of sessions")

    @route(
        "GET", "/api/sandboxes", LIFECYCLE, "listSandboxes", "A user's own sessions; for services all, or a user's",
        answers={200: Sessions}, parameters=(USER,), refusals=(400, 403, 503),
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        """A user gets their own sessions only; a service gets all, or those of `userId`."""
        who = principal(request)
        if who.kind != "user":
            asked = USER.read(request)
        elif request.query_params.get("userId", who.user_id) != who.user_id:
            raise ApiError(403, "not_your_user", "a user token lists its own sessions only; leave userId out")
        else:
            asked = who.user_id
        leave = await self._gates.enter(request)
        try:
            found = self._catalogue.described(asked)
            page: list[dict[str, Any]] = await anext(found, [])  # a store that is away is a 503 here
        except BaseException:
            leave()
            raise
        return LongResponse(_listed(page, found), over=leave, headers=UNCACHED, media_type="application/json")

    @route(
        "POST", ONE, LIFECYCLE_SESSION, "createSandbox",
        "Create a session, get the one there is, or revive an archived one",
        body=WishBody, answers={200: SessionJson, 201: SessionJson}, refusals=(400, 403, 409, 413, 503),
    )  # fmt: skip
    async def create(self, request: Request) -> Response:
        """201 for a new session, 200 for the owner's own again (also an archived one, which comes back). A session that
        a service creates without a `userId` belongs to the services."""
        body = await read_body(request, WishBody)
        user_id = self._owner(request, read_user(body))
        wish = replace(read_wish(body), by_service=principal(request).kind != "user")
        session_id = request.path_params["id"]
        known = await self._catalogue.owner(session_id)
        asked_for = {"network": wish.network, "clones": wish.repo_url is not None, "env_given": bool(wish.env)}
        note_asked(request, self._catalogue, user_id, "create", known=known is not None, **asked_for)
        if user_id == NO_USER and known not in (None, NO_USER):
            raise ApiError(409, "taken", "this session id is a user's: give the owner's userId, or choose another id")
        actor = await self._creation.create(session_id, user_id, wish)
        return answer(actor.describe(), 201 if known is None else 200)

    @staticmethod
    def _owner(request: Request, named: str | None) -> str:
        who = principal(request)
        if who.kind != "user":
            return named or NO_USER
        if named not in (None, who.user_id):
            raise ApiError(403, "not_your_user", "a user token creates its own sessions only; leave userId out")
        return who.user_id

    @_session("PATCH", "", "changeSandbox", "Change a session's title, metadata, idle time or mode", ChangeBody, 413)
    async def change(self, request: Request) -> Response:
        """A second create changes nothing of a session; this does. Members that are left out stay."""
        actor = await owned(request, self._registry)
        body = await read_body(request, ChangeBody)
        change = read_change(body)
        self._note(request, actor, "change", members=given_members(body))
        described = await actor.change(change)
        if "mode" in change and self._creation.has_core(actor.conversation.spec):
            actor.post(actor.intake.tell_mode)
        return answer(described)

    @_session("GET", "", "getSandbox", "The session, with its terminals")
    @_session("GET", "/status", "getStatus", "The session, with its terminals", who=LIFECYCLE_OR_GUEST)
    async def status(self, request: Request) -> Response:
        """The session with its terminals, if its sandbox runs and answers, and with the recent history of its sync."""
        actor = await owned(request, self._registry)
        terminals = await actor.terminals.describe()
        described = actor.describe()
        described["sync"]["history"] = [moved_members(moved) for moved in actor.workspace.sync.history]
        needed = await _needed_credentials(self._troubles(actor.user_id))
        described["models"] = shown_spent(self._spent(actor.id))
        of_one = {"terminals": terminals, "agentStatus": agent_status(actor), "needsCredentials": needed}
        return answer(described | of_one | await _resources(actor.sandbox))

    @_session("POST", "/resume", "resume", "Bring a session out of paused, needs_env, error or unrestored", ResumeBody)
    async def resume(self, request: Request) -> Response:
        """With `envVars` this also ends `needs_env`; an empty object means that the session needs none."""
        actor = await owned(request, self._registry)
        body = await read_body(request, ResumeBody)
        env = read_env(body.env_vars) if body.env_vars is not None else None
        empty, keep = body.empty, body.keep
        if empty and keep:
            raise ApiError(400, "bad_member", "empty and keep exclude each other: give one of them")
        self._note(request, actor, "resume", empty=empty, keep=keep, env_given=env is not None)
        return answer(await actor.resume(env, empty=empty, keep=keep))

    @_session("POST", "/pause", "pause", "Stop the sandbox until the session is resumed", Nothing)
    async def pause(self, request: Request) -> Response:
        return await self._step(request, "pause", SessionActor.pause)

    @_session("POST", "/sleep", "sleep", "Stop the sandbox until the next message", Nothing)
    async def sleep(self, request: Request) -> Response:
        return await self._step(request, "sleep", SessionActor.sleep)

    @_session("POST", "/wake", "wake", "Start the session's sandbox", WakeBody)
    async def wake(self, request: Request) -> Response:
        """With `config`, which takes the place of the session's own: an agent that is idle ends, and the next one has
        it."""
        actor = await owned(request, self._registry)
        config = read_session_config((await read_body(request, WakeBody)).config)
        self._note(request, actor, "wake")
        if config is not None:
            actor.post(reconfigure, actor, config)
        return answer(await actor.wake())

    @_session("POST", "/abort", "abort", "Stop the running turn", Nothing)
    async def abort(self, request: Request) -> Response:
        return await self._step(request, "abort", SessionActor.abort)

    @route(
        "POST", ONE + "/sync", LIFECYCLE_SESSION, "sync", "Sync the workspace now",
        body=Nothing, answers={200: SessionJson}, parameters=(WAIT,), refusals=(400, 404, 409, 503),
    )  # fmt: skip
    async def sync(self, request: Request) -> Response:
        """Answers when all earlier changes are stored; with `wait=0` at once."""
        wait = WAIT.read(request)
        actor = await owned(request, self._registry)
        await read_body(request, Nothing)
        self._note(request, actor, "sync", wait=wait)
        return answer(await actor.sync(wait=wait))

    @route(
        "DELETE", ONE, LIFECYCLE_SESSION, "deleteSandbox",
        "End the session; its conversation stays, archived, unless it is purged",
        answers={200: SessionJson}, parameters=(PURGE,), refusals=(400, 404, 409, 503),
    )  # fmt: skip
    async def delete(self, request: Request) -> Response:
        """Ends the session and its workspace; the conversation stays, archived, unless `purge=1`."""
        purge = PURGE.read(request)
        actor = await owned(request, self._registry)
        self._note(request, actor, "delete", purge=purge)
        return answer(await actor.destroy(purge))

    def _note(self, request: Request, actor: SessionActor, what: str, **fields: Any) -> None:
        note_asked(request, self._catalogue, actor.user_id, what, **fields)

    async def _step(self, request: Request, what: str, step: Step) -> Response:
        actor = await owned(request, self._registry)
        await read_body(request, Nothing)
        self._note(request, actor, what)
        return answer(await step(actor))


async def _needed_credentials(troubles: Awaitable[dict[str, str]]) -> list[dict[str, str]]:
    """Credentials that its agent may lack until they are set again. A store that is away must not delay the rest."""
    with contextlib.suppress(StoreUnavailable):
        return [{"provider": provider, "problem": told} for provider, told in sorted((await troubles).items())]
    return []


async def _resources(sandbox: Sandbox) -> dict[str, Any]:
    """Limits and use of a running sandbox. A provider that does not answer in time must not delay the rest."""
    found: Resources | None = None
    with contextlib.suppress(SandboxUnavailable, TimeoutError):
        async with asyncio.timeout(RESOURCE_SECONDS):
            found = await sandbox.resources()
    if found is None:
        return {"limits": None, "usage": None}
    limits, usage = found.limits, found.usage
    return {
        "limits": {"memory": limits.memory, "cpus": limits.cpus, "pids": limits.pids},
        "usage": {"memory": usage.memory, "cpuSeconds": usage.cpu_seconds, "pids": usage.pids},
    }


async def _listed(page: list[dict[str, Any]], rest: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[bytes]:
    """The list, a page at a time as its reader takes them."""
    yield b'{"sandboxes":' + orjson.dumps(page)[:-1]
    comma = b"," if page else b""
    async for more in rest:
        yield comma + orjson.dumps(more)[1:-1]
    yield b"]}"
