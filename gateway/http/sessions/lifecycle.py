"""The lifecycle of sessions: create, look at, change, put to sleep, wake, hold, end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.feed.feed import moved_members
from gateway.http.access import note_asked, owned, principal
from gateway.http.concurrency import ConcurrencyLimit
from gateway.http.request_bodies import (
    CHANGE_MEMBERS,
    CREATE_MEMBERS,
    RESUME_MEMBERS,
    read_change,
    read_env,
    read_user,
    read_wish,
)
from gateway.http.responses import UNCACHED, LongResponse, answer, query_flag, query_user, read_object
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.registry import SessionRegistry
from persistence.record import NO_USER

LISTS = 2  # at once for each user
Step = Callable[[SessionActor], Awaitable[dict[str, Any]]]


class SandboxRoutes:
    """`/api/sandboxes`: for owners by their JWT, for services by the relay secret or the API token."""

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        self._gates = ConcurrencyLimit(LISTS, "lists of sessions")

    def routes(self) -> list[BaseRoute]:
        one = "/api/sandboxes/{id}"
        return [
            Route("/api/sandboxes", self.list, methods=["GET"]),
            Route(one, self.create, methods=["POST"]),
            Route(one, self.status, methods=["GET"]),
            Route(one, self.change, methods=["PATCH"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/status", self.status, methods=["GET"]),
            Route(f"{one}/resume", self.resume, methods=["POST"]),
            Route(f"{one}/pause", self._step("pause", SessionActor.pause), methods=["POST"]),
            Route(f"{one}/sleep", self._step("sleep", SessionActor.sleep), methods=["POST"]),
            Route(f"{one}/wake", self._step("wake", SessionActor.wake), methods=["POST"]),
            Route(f"{one}/abort", self._step("abort", SessionActor.abort), methods=["POST"]),
            Route(f"{one}/sync", self.sync, methods=["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        """A user sees their own sessions, whatever they ask for; a service sees all, or those of `userId`."""
        who = principal(request)
        if who.kind != "user":
            asked = query_user(request)
        elif request.query_params.get("userId", who.user_id) != who.user_id:
            raise ApiError(403, "not_your_user", "a user token lists its own sessions only; leave userId out")
        else:
            asked = who.user_id
        leave = await self._gates.enter(request)
        try:
            found = self._registry.described(asked)
            page: list[dict[str, Any]] = await anext(found, [])  # a store that is away is a 503 here
        except BaseException:
            leave()
            raise
        return LongResponse(_listed(page, found), over=leave, headers=UNCACHED, media_type="application/json")

    async def create(self, request: Request) -> Response:
        """201 for a new session, 200 for the owner's own again (also an archived one, which comes back). What a service
        creates without a `userId` is the services'."""
        body = await read_object(request, known=CREATE_MEMBERS)
        user_id = self._owner(request, read_user(body))
        wish = replace(read_wish(body), by_service=principal(request).kind != "user")
        session_id = request.path_params["id"]
        known = await self._registry.owner(session_id)
        asked_for = {"network": wish.network, "clones": wish.repo_url is not None, "env_given": bool(wish.env)}
        note_asked(request, self._registry, user_id, "create", known=known is not None, **asked_for)
        actor = await self._registry.create(session_id, user_id, wish)
        return answer(actor.describe(), 201 if known is None else 200)

    @staticmethod
    def _owner(request: Request, named: str | None) -> str:
        who = principal(request)
        if who.kind != "user":
            return named or NO_USER
        if named not in (None, who.user_id):
            raise ApiError(403, "not_your_user", "a user token creates its own sessions only; leave userId out")
        return who.user_id

    async def change(self, request: Request) -> Response:
        """A second create changes nothing of a session; this does. Members that are left out stay."""
        actor = await owned(request, self._registry)
        body = await read_object(request, known=CHANGE_MEMBERS)
        change = read_change(body)
        self._note(request, actor, "change", members=sorted(body))
        return answer(await actor.change(change))

    async def status(self, request: Request) -> Response:
        """With its terminals, if its sandbox runs and answers, and what its sync did of late."""
        actor = await owned(request, self._registry)
        terminals = await actor.terminals.describe()
        described = actor.describe()
        described["sync"]["history"] = [moved_members(moved) for moved in actor.workspace.history]
        return answer(described | {"terminals": terminals})

    async def resume(self, request: Request) -> Response:
        """With `envVars`, also what brings a session back from `needs_env`; an empty object says that it needs none."""
        actor = await owned(request, self._registry)
        body = await read_object(request, known=RESUME_MEMBERS)
        env = read_env(body) if body.get("envVars") is not None else None
        empty, keep = body.get("empty", False), body.get("keep", False)
        if not isinstance(empty, bool) or not isinstance(keep, bool):
            raise ApiError(400, "bad_member", "empty and keep must be true or false")
        if empty and keep:
            raise ApiError(400, "bad_member", "empty and keep exclude each other: say which one is meant")
        self._note(request, actor, "resume", empty=empty, keep=keep, env_given=env is not None)
        return answer(await actor.resume(env, empty=empty, keep=keep))

    async def sync(self, request: Request) -> Response:
        """Answers when everything written before it was asked is kept; with `wait=0` at once."""
        wait = query_flag(request, "wait", default=True)
        actor = await owned(request, self._registry)
        await read_object(request, known=frozenset())
        self._note(request, actor, "sync", wait=wait)
        return answer(await actor.sync(wait=wait))

    async def delete(self, request: Request) -> Response:
        """Ends the session and its workspace; the conversation stays, archived, unless `purge=1`."""
        purge = query_flag(request, "purge")
        actor = await owned(request, self._registry)
        self._note(request, actor, "delete", purge=purge)
        return answer(await actor.destroy(purge))

    def _note(self, request: Request, actor: SessionActor, what: str, **fields: Any) -> None:
        note_asked(request, self._registry, actor.user_id, what, **fields)

    def _step(self, what: str, step: Step) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            actor = await owned(request, self._registry)
            await read_object(request, known=frozenset())
            self._note(request, actor, what)
            return answer(await step(actor))

        return endpoint


async def _listed(page: list[dict[str, Any]], rest: AsyncIterator[list[dict[str, Any]]]) -> AsyncIterator[bytes]:
    """The list, a page at a time as its reader takes them."""
    yield b'{"sandboxes":' + orjson.dumps(page)[:-1]
    comma = b"," if page else b""
    async for more in rest:
        yield comma + orjson.dumps(more)[1:-1]
    yield b"]}"
