"""The barest bridge: the cost of a bridge's job in Python, without checks and without error handling.

It listens on a unix socket, speaks the link of sandbox/protocol/agent.py with one gateway, notes the seq of each
message before the agent gets it, and keeps the agent's lines until the gateway has confirmed them. It has no token, no
bound, no second gateway, and does not handle the agent's exit. It uses uvloop, our own frames, and no task.

    python -m bench.bare_bridge SOCKET NOTES AGENT...
"""

import asyncio
import os
import subprocess
import sys
from typing import cast

import uvloop
from websockets.utils import accept_key

from sandbox.protocol import agent as wire
from sandbox.protocol.values import Hello
from sandbox.protocol.websocket_frames import BINARY, TEXT, FrameReader, frame

EPOCH = "bare"


class BareBridge(asyncio.Protocol):
    def __init__(self, notes: int, agent: "subprocess.Popen[bytes]") -> None:
        assert agent.stdin is not None
        assert agent.stdout is not None
        self._notes = notes
        self._input, self._output = agent.stdin.fileno(), agent.stdout.fileno()
        self._reader = FrameReader(wire.MAX_DOWN, 1, masked=True)
        self._head, self._open = b"", False
        self._rest = b""
        self._kept: list[bytes] = []
        self._base = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._open:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._shake_hands(head.decode())
        self._reader.feed(data)
        while (message := self._reader.read()) is not None:
            opcode, payload = message
            if opcode == BINARY:
                self._take(payload)
            elif opcode == TEXT:
                self._obey(wire.decode_down(payload))

    def _shake_hands(self, head: str) -> None:
        key = next(line[19:] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key: "))
        self._transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept_key(key).encode()
        )
        self._open = True

    def _take(self, payload: bytes) -> None:
        deliveries = wire.split_deliveries(payload)
        taken = deliveries[-1][0]
        os.pwrite(self._notes, b"%016d" % taken, 0)
        lines = b"".join([line + b"\n" for _, line in deliveries])
        if os.write(self._input, lines) != len(lines):
            raise BlockingIOError("the agent does not read")
        self._transport.write(frame(TEXT, wire.encode(wire.Taken(taken))))

    def _on_output(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._output, 65536)).split(b"\n")
        self._kept += lines
        self._transport.write(frame(BINARY, wire.join_lines(lines)))

    def _obey(self, message: wire.Down) -> None:
        match message:
            case wire.Attach():
                self._say(Hello("bare-bridge0", 0, None, alive=False, held=False))
            case wire.Start():
                self._say(wire.Epoch(EPOCH, 0))
                asyncio.get_running_loop().add_reader(self._output, self._on_output)
            case wire.Seen(_, offset):
                del self._kept[: offset - self._base]
                self._base = offset
            case wire.Ping(n):
                self._say(wire.Pong(n))

    def _say(self, message: wire.Up) -> None:
        self._transport.write(frame(TEXT, wire.encode(message)))


async def serve(path: str, notes: int, agent: "subprocess.Popen[bytes]") -> None:
    server = await asyncio.get_running_loop().create_unix_server(lambda: BareBridge(notes, agent), path)
    await server.serve_forever()


def main(path: str, notes: str, *argv: str) -> None:
    agent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    uvloop.run(serve(path, os.open(notes, os.O_RDWR | os.O_CREAT, 0o600), agent))


if __name__ == "__main__":
    main(*sys.argv[1:])
