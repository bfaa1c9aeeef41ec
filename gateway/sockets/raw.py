"""`/ws/sandboxes/{id}`: one agent line is one text frame, both ways, with nothing added."""

from starlette.websockets import WebSocket

from gateway.auth.policy import RELAY_OR_OWNER
from gateway.protocol.close_codes import CloseCode
from gateway.routing.route import socket
from gateway.server.viewer import Viewer
from gateway.session.actor import SessionActor
from gateway.sockets.attach import AccessWatch, SocketAttacher, outlet_of, slow_down


class RawSocket:
    def __init__(self, doorway: SocketAttacher) -> None:
        self._doorway = doorway

    @socket("/ws/sandboxes/{id}", RELAY_OR_OWNER, "the agent's lines as they are, for relays")
    async def serve(self, websocket: WebSocket) -> None:
        actor = await self._doorway.enter(websocket)
        if actor is None:
            return
        await websocket.accept()
        outlet, who = outlet_of(websocket), websocket.state.principal
        viewer = Viewer(outlet, raw=True)
        entry = AccessWatch(viewer, who, self._doorway.verifier, actor.guests)
        lines = _Lines(actor, viewer, entry)
        outlet.on_text = lines.on_text
        outlet.outlive_app(lines.on_over)
        actor.post(actor.viewers.attach, viewer, None)
        actor.post(entry.begin)


class _Lines:
    __slots__ = ("_actor", "_entry", "_viewer")

    def __init__(self, actor: SessionActor, viewer: Viewer, entry: AccessWatch) -> None:
        self._actor = actor
        self._viewer = viewer
        self._entry = entry

    def on_text(self, raw: bytes) -> None:
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if b"\n" in line or b"\r" in line:
            self._viewer.close(CloseCode.BAD_FRAME, "one frame is one line")
        elif line:
            self._actor.inbox.hear(len(line), self._actor.intake.receive_line, self._viewer, line.decode())
            slow_down(self._actor, self._viewer)

    def on_over(self) -> None:
        self._entry.end()
        self._actor.post(self._actor.viewers.detach, self._viewer)
