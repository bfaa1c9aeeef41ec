"""The WebSocket routes of terminals: they check access, choose the dialect and the terminal; then the connection is
spliced and the endpoint returns.
"""

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from gateway.auth.credentials import read_query
from gateway.auth.identity import Accept
from gateway.auth.policy import OWNER_OR_GUEST, RoutePolicy, refuse
from gateway.protocol.errors import ApiError
from gateway.routing.route import socket
from gateway.server.spliced_socket import SplicedSocket
from gateway.session.actor import SessionActor
from gateway.sockets.attach import AccessWatch, SocketAttacher, asked_position, outlet_of
from gateway.terminal.dialects.negotiate import Choice, Kind, choose
from gateway.terminal.viewer import TerminalViewer
from sandbox.protocol.terminal import MAX_SIDE, NAME, NOWHERE, Role, Size, can_be_asked_for
from sandbox.protocol.values import Position

MAIN = "main"


class TerminalSocket:
    """A route for each kind of client."""

    def __init__(self, doorway: SocketAttacher) -> None:
        self._doorway = doorway

    @socket(
        "/terminal/{sessionId}", RoutePolicy(Accept.USER, "sessionId", shared=True),
        "a terminal (`?name=`): bytes, plain or in the native dialect, which resumes",
    )  # fmt: skip
    async def serve(self, websocket: WebSocket) -> None:
        await self._serve(websocket, "terminal")

    @socket("/v1/sandbox/{id}/pty", OWNER_OR_GUEST, "the main terminal, as Cloudflare's add-on speaks")
    async def serve_cloudflare(self, websocket: WebSocket) -> None:
        await self._serve(websocket, "cloudflare")

    @socket("/jupyter/{id}/terminals/websocket/{name}", OWNER_OR_GUEST, "a terminal, as JupyterLab speaks")
    async def serve_jupyter(self, websocket: WebSocket) -> None:
        await self._serve(websocket, "jupyter")

    @socket("/tty/{id}/ws", OWNER_OR_GUEST, "the main terminal, as ttyd's client speaks")
    async def serve_ttyd(self, websocket: WebSocket) -> None:
        await self._serve(websocket, "tty")

    async def _serve(self, websocket: WebSocket, kind: Kind) -> None:
        actor = await self._doorway.enter(websocket)
        if actor is None:
            return
        try:
            choice = choose(kind, websocket.scope["subprotocols"], read_query(websocket.scope))
            viewer = await self._viewer(websocket, actor, kind, choice)
        except ApiError as error:
            return await refuse(websocket.scope, websocket.receive, websocket.send, error)
        await websocket.accept(subprotocol=choice.protocol)
        entry = AccessWatch(viewer, websocket.state.principal, self._doorway.verifier, actor.guests)
        seat(actor, viewer, outlet_of(websocket).hand_over(viewer, passes=choice.dialect.splices), entry)

    async def _viewer(self, websocket: WebSocket, actor: SessionActor, kind: Kind, choice: Choice) -> TerminalViewer:
        ours = kind == "terminal"
        name = websocket.path_params.get("name") or (websocket.query_params.get("name", MAIN) if ours else MAIN)
        if not NAME.fullmatch(name):
            raise ApiError(400, "bad_name", "a terminal's name: letters, digits, - and _, at most 64")
        if kind == "jupyter" and not await actor.terminals.has(name):
            raise ApiError(404, "unknown_terminal", "there is no such terminal")
        after = _asked_place(websocket) if ours else None
        return TerminalViewer(
            actor.terminals, name, choice.dialect, _role(websocket), after=after, size=asked_size(websocket)
        )


def seat(actor: SessionActor, viewer: TerminalViewer, socket: SplicedSocket, entry: AccessWatch) -> None:
    """Let a viewer with an open connection into the session, for as long as its token is valid."""
    viewer.on_renewal = lambda token: entry.renew(token, lambda refreshing: actor.host.spawn(refreshing, "auth"))
    viewer.begin(socket)
    socket.when_gone(entry.end)
    actor.post(actor.viewers.join_terminal, viewer)
    actor.post(entry.begin)


def _asked_place(websocket: WebSocket) -> Position | None:
    """The position in the query. One that no bridge could understand becomes NOWHERE."""
    asked = asked_position(websocket)
    return asked if asked is None or can_be_asked_for(asked) else NOWHERE


def _role(websocket: WebSocket) -> Role:
    """The role in the query; a viewer whose token allows only viewing gets `view`."""
    asked = websocket.query_params.get("role", "drive")
    if asked not in ("drive", "view"):
        raise ApiError(400, "bad_role", "role is drive or view")
    return "drive" if asked == "drive" and websocket.state.principal.role == "drive" else "view"


def asked_size(connection: HTTPConnection) -> Size | None:
    """The size in `?cols=&rows=`; None without them. Raises ApiError."""
    given = [connection.query_params.getlist(name) for name in ("cols", "rows")]
    if not any(given):
        return None
    sides = [values[0] for values in given if len(values) == 1]
    readable = len(sides) == 2 and all(side.isascii() and side.isdecimal() and len(side) <= 4 for side in sides)
    if not readable or not all(1 <= int(side) <= MAX_SIDE for side in sides):
        raise ApiError(400, "bad_size", f"cols and rows must be given together, whole numbers from 1 to {MAX_SIDE}")
    return Size(int(sides[0]), int(sides[1]))
