"""`/ws/v2`: the chat channel. Reads frames, hands them to the session, and keeps the viewer's token good."""

from starlette.websockets import WebSocket

from gateway.auth.identity import Accept
from gateway.auth.policy import RoutePolicy
from gateway.protocol import chat_frames
from gateway.protocol.close_codes import CloseCode
from gateway.routing.route import socket
from gateway.server.viewer import Viewer
from gateway.session.actor import SessionActor
from gateway.sockets.attach import AccessWatch, SocketAttacher, asked_position, outlet_of, slow_down
from persistence import crash_points

PROTOCOL = "holdfast.chat.v2"
REASON_BYTES = 120


class ChatSocket:
    def __init__(self, doorway: SocketAttacher) -> None:
        self._doorway = doorway

    @socket(
        "/ws/v2", RoutePolicy(Accept.USER, "sessionId", shared=True),
        "the chat socket of a session (`?sessionId=`): messages, acknowledgements, streamed answers, resume",
    )  # fmt: skip
    async def serve(self, websocket: WebSocket) -> None:
        actor = await self._doorway.enter(websocket)
        if actor is None:
            return
        offered = websocket.scope["subprotocols"]
        await websocket.accept(subprotocol=PROTOCOL if PROTOCOL in offered else None)
        outlet, who = outlet_of(websocket), websocket.state.principal
        viewer = Viewer(outlet)
        entry = AccessWatch(viewer, who, self._doorway.verifier, actor.guests)
        reader = _Reader(actor, viewer, entry, looks_only=who.role == "view")
        outlet.on_text = reader.on_text
        outlet.outlive_app(reader.on_over)
        actor.post(actor.viewers.attach, viewer, asked_position(websocket))
        actor.post(entry.begin)


class _Reader:
    """The input of one chat socket. MessageSocket (gateway/server/message_socket.py) calls it with each whole text
    message; it never waits."""

    __slots__ = ("_actor", "_entry", "_looks_only", "_viewer")

    def __init__(self, actor: SessionActor, viewer: Viewer, entry: AccessWatch, *, looks_only: bool) -> None:
        self._actor = actor
        self._looks_only = looks_only
        self._viewer = viewer
        self._entry = entry

    def on_text(self, raw: bytes) -> None:
        actor, viewer = self._actor, self._viewer
        if actor.ended:
            viewer.close(actor.ended_with)
            return
        try:
            frame = chat_frames.read_frame(raw)
        except chat_frames.UnreadableFrame as error:
            viewer.close(CloseCode.BAD_FRAME, str(error).encode()[:REASON_BYTES].decode(errors="ignore"))
            return
        except chat_frames.Invalid as error:
            viewer.send(chat_frames.nack(error.cid, "invalid", error.text))
            return
        match frame.type:
            case "ping":
                viewer.send(chat_frames.dump("pong", id=frame.body.get("id")))
            case "auth":
                self._entry.renew(frame.body["token"], lambda refreshing: actor.host.spawn(refreshing, "auth"))
            case _ if self._looks_only:
                self._refuse(frame.cid, "read_only", "this token is for looking")
            case "start" if len(raw) > chat_frames.START_BYTES:
                self._refuse(frame.cid, "start_too_large", chat_frames.START_TOO_LARGE)
            case _:
                crash_points.reached("frame.parsed")
                actor.inbox.hear(len(raw), actor.intake.receive, viewer, frame)
                if actor.inbox.crowded:
                    slow_down(actor, viewer)

    def on_over(self) -> None:
        self._entry.end()
        self._actor.post(self._actor.viewers.detach, self._viewer)

    def _refuse(self, cid: str | None, code: str, text: str) -> None:
        if cid is not None:
            self._viewer.send(chat_frames.nack(cid, code, text))
        else:
            self._viewer.tell_trouble(code, text)
