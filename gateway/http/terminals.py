"""A session's terminals by HTTP: listed, made, resized, ended; and the first requests of other servers' clients."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import LIFECYCLE_OR_GUEST, LIFECYCLE_SESSION, OWNER, OWNER_OR_GUEST
from gateway.http.access import note_asked, owned
from gateway.http.request_bodies import (
    A_PATH,
    SizeBody,
    TerminalWishBody,
    read_command,
    read_directory,
    read_env,
    read_size,
)
from gateway.http.responses import answer, read_body
from gateway.http.sessions.answers import TerminalJson
from gateway.protocol.errors import ApiError
from gateway.routing.json_types import JsonAnswer, JsonBody, Time, must
from gateway.routing.parameters import Parameter
from gateway.routing.route import route
from gateway.session.actor import SessionActor
from gateway.session.catalogue import Catalogue
from gateway.session.model.state import SessionStatus
from gateway.session.registry import SessionRegistry
from sandbox.ports.link import LinkRefused
from sandbox.ports.terminals import TerminalRefused, TerminalWish
from sandbox.protocol.terminal import NAME, Size

OURS, JUPYTER = "/api/sandboxes/{id}/terminals", "/jupyter/{id}/api/terminals"
NAMED = Parameter("name", {"type": "string", "pattern": f"^{NAME.pattern}$"}, where="path")
LONG_IDLE = 366 * 86400


class TerminalsJson(JsonAnswer):
    terminals: list[TerminalJson]


class JupyterWishBody(JsonBody):
    name: Annotated[str | None, must("a string")] = None
    cwd: Annotated[Annotated[str, Meta(max_length=4096)] | None, must(A_PATH)] = None


class JupyterTerminal(JsonAnswer, rename=None):
    name: str
    last_activity: Time


JupyterTerminals = list[JupyterTerminal]


class TtyToken(JsonAnswer):
    token: str


class TerminalRoutes:
    def __init__(self, registry: SessionRegistry, catalogue: Catalogue) -> None:
        self._registry = registry
        self._catalogue = catalogue

    @route(
        "GET", OURS, LIFECYCLE_OR_GUEST, "listTerminals",
        "What runs in the session's terminals; none while its sandbox does not run",
        answers={200: TerminalsJson}, refusals=(404, 503),
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        """Wakes no sandbox: one that does not run has no terminals."""
        actor = await owned(request, self._registry)
        return answer({"terminals": await actor.terminals.describe() or []})

    @route(
        "POST", OURS + "/{name}", LIFECYCLE_SESSION, "createTerminal",
        "Make a terminal, or find it there; wakes the sandbox", body=TerminalWishBody,
        answers={201: TerminalJson, 200: TerminalJson}, parameters=(NAMED,), refusals=(400, 404, 409, 413, 429, 503),
    )  # fmt: skip
    async def create(self, request: Request) -> Response:
        """Make a terminal, or find it there: 201 or 200. Wakes the sandbox."""
        actor = await owned(request, self._registry)
        body = await read_body(request, TerminalWishBody)
        wish = TerminalWish(
            command=read_command("command", body.command),
            env=read_env(body.env_vars),
            cwd=read_directory(body.cwd),
            size=read_size(body.cols, body.rows),
        )
        name = _name(request.path_params["name"])
        await self._awake(request, actor)
        created = await self._ask(actor, lambda terminals: terminals.create(name, wish))
        found = await self._one(actor, name)
        return answer(found, 201 if created else 200)

    @route(
        "POST", OURS + "/{name}/size", LIFECYCLE_SESSION, "resizeTerminal",
        "Resize a terminal, for clients that cannot do it themselves",
        body=SizeBody, answers={200: TerminalJson}, parameters=(NAMED,), refusals=(400, 404, 413, 503),
    )  # fmt: skip
    async def resize(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        body = await read_body(request, SizeBody)
        size = Size(body.cols, body.rows)
        name = _name(request.path_params["name"])
        await self._one(actor, name)
        await self._ask(actor, lambda terminals: terminals.resize(name, size))
        return answer(await self._one(actor, name))

    @route(
        "DELETE", OURS + "/{name}", LIFECYCLE_SESSION, "endTerminal", "Hang up on a terminal's program",
        answers={200: TerminalJson}, parameters=(NAMED,), refusals=(400, 404, 503),
    )  # fmt: skip
    async def end(self, request: Request) -> Response:
        """Hang up on its program. Its viewers get the same frames as when it ends by itself."""
        actor = await owned(request, self._registry)
        name = _name(request.path_params["name"])
        found = await self._one(actor, name)
        await self._ask(actor, lambda terminals: terminals.end(name))
        return answer(found)

    # Jupyter's REST: the routes that its terminal manager needs

    @route(
        "GET", JUPYTER, OWNER_OR_GUEST, "listJupyterTerminals", "The session's terminals, for Jupyter's clients",
        answers={200: JupyterTerminals}, refusals=(404, 503),
    )  # fmt: skip
    async def jupyter_list(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        return answer([_as_jupyter(each) for each in await actor.terminals.describe() or []])

    @route(
        "POST", JUPYTER, OWNER, "createJupyterTerminal", "A new terminal for Jupyter's clients, numbered unless named",
        body=JupyterWishBody, answers={200: JupyterTerminal}, refusals=(400, 404, 409, 413, 429, 503),
    )  # fmt: skip
    async def jupyter_create(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        body = await read_body(request, JupyterWishBody)
        await self._awake(request, actor)
        taken = {each["name"] for each in await actor.terminals.describe() or []}
        free = (str(number) for number in range(1, 1000) if str(number) not in taken)
        name = _name(body.name) if body.name else next(free)
        wish = TerminalWish(cwd=read_directory(body.cwd))
        await self._ask(actor, lambda terminals: terminals.create(name, wish))
        return answer(_as_jupyter(await self._one(actor, name)))

    @route(
        "GET", JUPYTER + "/{name}", OWNER_OR_GUEST, "getJupyterTerminal", "One terminal, for Jupyter's clients",
        answers={200: JupyterTerminal}, parameters=(NAMED,), refusals=(400, 404, 503),
    )  # fmt: skip
    async def jupyter_one(self, request: Request) -> Response:
        actor = await owned(request, self._registry)
        return answer(_as_jupyter(await self._one(actor, _name(request.path_params["name"]))))

    @route(
        "DELETE", JUPYTER + "/{name}", OWNER, "endJupyterTerminal", "End a terminal, for Jupyter's clients",
        answers={204: None}, parameters=(NAMED,), refusals=(400, 404, 503),
    )  # fmt: skip
    async def end_quietly(self, request: Request) -> Response:
        await self.end(request)
        return Response(status_code=204)

    @route(
        "GET", "/tty/{id}/token", OWNER_OR_GUEST, "ttyToken", "What ttyd's client asks for first",
        answers={200: TtyToken}, refusals=(404, 503),
    )  # fmt: skip
    async def tty_token(self, request: Request) -> Response:
        """ttyd's client asks for a token and sends it back. The token is empty: this request and the upgrade each prove
        who the user is."""
        await owned(request, self._registry)
        return answer(TtyToken(""))

    # Asking the bridge

    async def _ask(self, actor: SessionActor, what: Any) -> Any:
        try:
            return await what(actor.sandbox.terminals())
        except TerminalRefused as error:
            raise ApiError(error.status, error.code, str(error)) from error
        except LinkRefused as error:
            raise ApiError(503, "sandbox_away", f"the sandbox does not answer: {error}") from error

    async def _awake(self, request: Request, actor: SessionActor) -> None:
        if actor.conversation.state.status is not SessionStatus.RUNNING:
            note_asked(request, self._catalogue, actor.user_id, "wake")
        woken = await actor.wake()
        if woken["status"] != SessionStatus.RUNNING:
            raise ApiError(409, "not_running", f"the sandbox does not run: {woken['reason'] or woken['status']}")

    async def _one(self, actor: SessionActor, name: str) -> dict[str, Any]:
        for found in await actor.terminals.describe() or []:
            if found.get("name") == name:
                return found
        raise ApiError(404, "unknown_terminal", "there is no such terminal")


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ApiError(400, "bad_name", "a terminal's name: letters, digits, - and _, at most 64")
    return text


def _as_jupyter(terminal: dict[str, Any]) -> dict[str, Any]:
    since = datetime.now(UTC) - timedelta(seconds=min(terminal["idleSeconds"], LONG_IDLE))
    return {"name": terminal["name"], "last_activity": since.isoformat().replace("+00:00", "Z")}
