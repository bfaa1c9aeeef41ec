"""A session's terminals by HTTP: listed, made, resized, ended; and what the clients of other servers ask for first."""

from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gateway.http.access import owned
from gateway.http.request_bodies import read_command, read_env, read_size
from gateway.http.responses import answer, read_object
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.model.state import SessionStatus
from gateway.session.registry import SessionRegistry
from sandbox.ports.provider import LinkRefused, SandboxProvider
from sandbox.ports.terminals import SandboxTerminals, TerminalRefused, TerminalWish
from sandbox.protocol.terminal import NAME

CREATE_MEMBERS = frozenset({"command", "envVars", "cwd", "cols", "rows"})
SIZE_MEMBERS = frozenset({"cols", "rows"})
LONG_IDLE = 366 * 86400
JUPYTER_MEMBERS = frozenset({"name", "cwd"})


class TerminalRoutes:
    def __init__(self, registry: SessionRegistry, provider: SandboxProvider) -> None:
        self._registry = registry
        self._provider = provider

    def routes(self) -> list[BaseRoute]:
        ours, jupyter = "/api/sandboxes/{id}/terminals", "/jupyter/{id}/api/terminals"
        return [
            Route(ours, self.list, methods=["GET"]),
            Route(f"{ours}/{{name}}", self.create, methods=["POST"]),
            Route(f"{ours}/{{name}}", self.end, methods=["DELETE"]),
            Route(f"{ours}/{{name}}/size", self.resize, methods=["POST"]),
            Route(jupyter, self.jupyter_list, methods=["GET"]),
            Route(jupyter, self.jupyter_create, methods=["POST"]),
            Route(f"{jupyter}/{{name}}", self.jupyter_one, methods=["GET"]),
            Route(f"{jupyter}/{{name}}", self.end_quietly, methods=["DELETE"]),
            Route("/tty/{id}/token", self.tty_token, methods=["GET"]),
        ]

    async def list(self, request: Request) -> Response:
        """Nobody is woken: of a sandbox that does not run there are none."""
        actor = await owned(request, self._registry)
        return answer({"terminals": await actor.terminals.describe() or []})

    async def create(self, request: Request) -> Response:
        """Make a terminal, or find it there: 201 or 200. Wakes the sandbox."""
        actor = await owned(request, self._registry)
        body = await read_object(request, known=CREATE_MEMBERS)
        wish = TerminalWish(command=read_command(body), env=read_env(body), cwd=_directory(body), size=read_size(body))
        name = _name(request.path_params["name"])
        created = await self._ask(actor, lambda terminals: terminals.create(name, wish))
        found = await self._one(actor, name)
        return answer(found, 201 if created else 200)

    async def resize(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        size = read_size(await read_object(request, known=SIZE_MEMBERS))
        if size is None:
            raise ApiError(400, "bad_member", "cols and rows must be given")
        name = _name(request.path_params["name"])
        await self._one(actor, name)
        await self._ask(actor, lambda terminals: terminals.resize(name, size), wake=False)
        return answer(await self._one(actor, name))

    async def end(self, request: Request) -> Response:
        """Hang up on its program. Its viewers are told, like when it ends by itself."""
        actor = await owned(request, self._registry)
        name = _name(request.path_params["name"])
        found = await self._one(actor, name)
        await self._ask(actor, lambda terminals: terminals.end(name), wake=False)
        return answer(found)

    # Jupyter's REST: what its terminal manager needs

    async def jupyter_list(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        return answer([_as_jupyter(each) for each in await actor.terminals.describe() or []])

    async def jupyter_create(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        body = await read_object(request, known=JUPYTER_MEMBERS)
        asked = body.get("name")
        if asked is not None and not isinstance(asked, str):
            raise ApiError(400, "bad_member", "name must be a string")
        await self._awake(actor)
        taken = {each["name"] for each in await actor.terminals.describe() or []}
        free = (str(number) for number in range(1, 1000) if str(number) not in taken)
        name = _name(asked) if asked else next(free)
        wish = TerminalWish(cwd=_directory(body))
        await self._ask(actor, lambda terminals: terminals.create(name, wish))
        return answer(_as_jupyter(await self._one(actor, name)))

    async def jupyter_one(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        return answer(_as_jupyter(await self._one(actor, _name(request.path_params["name"]))))

    async def end_quietly(self, request: Request) -> Response:
        await self.end(request)
        return Response(status_code=204)

    async def tty_token(self, request: Request) -> Response:
        """ttyd's client asks for it and sends it back. Who it is was shown by this request, and is shown again with
        the upgrade: the token says nothing."""
        await owned(request, self._registry)
        return answer({"token": ""})

    # Asking the bridge

    async def _ask(self, actor: SessionActor, what: Any, *, wake: bool = True) -> Any:
        if wake:
            await self._awake(actor)
        terminals: SandboxTerminals = self._provider.terminals(actor.id)
        try:
            return await what(terminals)
        except TerminalRefused as error:
            raise ApiError(error.status, error.code, str(error)) from error
        except LinkRefused as error:
            raise ApiError(503, "sandbox_away", f"the sandbox does not answer: {error}") from error

    async def _awake(self, actor: SessionActor) -> None:
        if (await actor.wake())["status"] != SessionStatus.RUNNING:
            reason = actor.conversation.state.reason
            raise ApiError(409, "not_running", f"the sandbox does not run: {reason or actor.life.status}")

    async def _one(self, actor: SessionActor, name: str) -> dict[str, Any]:
        for found in await actor.terminals.describe() or []:
            if found.get("name") == name:
                return found
        raise ApiError(404, "unknown_terminal", "there is no such terminal")


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ApiError(400, "bad_name", "a terminal's name: letters, digits, - and _, at most 64")
    return text


def _directory(body: dict[str, Any]) -> str | None:
    value = body.get("cwd")
    if value is not None and (not isinstance(value, str) or "\0" in value or len(value) > 4096):
        raise ApiError(400, "bad_member", "cwd must be a path of at most 4096 characters")
    return value or None


def _as_jupyter(terminal: dict[str, Any]) -> dict[str, Any]:
    since = datetime.now(UTC) - timedelta(seconds=min(terminal["idleSeconds"], LONG_IDLE))
    return {"name": terminal["name"], "last_activity": since.isoformat().replace("+00:00", "Z")}
