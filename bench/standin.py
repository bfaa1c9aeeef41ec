"""One stand-in bridge for every session, without sandboxes or agents. The benchmark measures the way to it and back.

On `/agent` it speaks the link protocol of sandbox/protocol/agent.py, on any other path plain WebSocket messages, one
for each frame. Either way, it answers a message with the same three frames in one write: chunk, chunk, done. On the
link, the three lines share one binary message, as a real bridge sends lines that its agent wrote together, and a
`taken` goes before them.
"""

import asyncio
import secrets
import sys
from typing import cast

import uvloop
from websockets.utils import accept_key

from bench.processes import raise_descriptor_limit
from sandbox.protocol import agent as wire
from sandbox.protocol.values import Hello
from sandbox.protocol.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, FrameReader, frame

ANSWER = (
    b'{"type":"chunk","text":"The quick brown fox jumps "}',
    b'{"type":"chunk","text":"over the lazy dog, and rests."}',
    b'{"type":"done","metadata":{"turns":1}}',
)
PLAIN_ANSWER = b"".join(frame(TEXT, line) for line in ANSWER)
MAX_MESSAGE = 4 << 20


class Connection(asyncio.Protocol):
    """The far end of one relayed session."""

    def __init__(self) -> None:
        self._head = b""
        self._open = False
        self._is_link = False
        self._reader = FrameReader(MAX_MESSAGE, 1, masked=True)
        self._epoch = ""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if not self._open:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._transport.write(self._shake_hands(head.decode()))
            self._open, self._head = True, b""
        self._reader.feed(data)
        out: list[bytes] = []
        while (message := self._reader.read()) is not None:
            opcode, payload = message
            if opcode == CLOSE:
                self._transport.close()
            elif opcode == PING:
                out.append(frame(PONG, payload))
            elif not self._is_link and opcode in (TEXT, BINARY):
                out.append(PLAIN_ANSWER)
            elif opcode == BINARY:
                out.append(self._take(payload))
            elif opcode == TEXT:
                out.append(self._obey(wire.decode_down(payload)))
        if out:
            self._transport.write(b"".join(out))

    def _shake_hands(self, head: str) -> bytes:
        request, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._is_link = request.split()[1] == "/agent"
        return (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(headers['sec-websocket-key'])}\r\n\r\n"
        ).encode()

    def _take(self, payload: bytes) -> bytes:
        deliveries = wire.split_deliveries(payload)
        taken = wire.encode(wire.Taken(deliveries[-1][0]))
        return frame(TEXT, taken) + frame(BINARY, wire.join_lines(ANSWER * len(deliveries)))

    def _obey(self, message: wire.Down) -> bytes:
        match message:
            case wire.Attach():
                return frame(TEXT, wire.encode(Hello(secrets.token_urlsafe(9), 0, None, alive=False, held=False)))
            case wire.Start():
                self._epoch = secrets.token_urlsafe(9)
                return frame(TEXT, wire.encode(wire.Epoch(self._epoch, 0)))
            case wire.Ping(n):
                return frame(TEXT, wire.encode(wire.Pong(n)))
        return b""


async def main() -> None:
    raise_descriptor_limit()
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
