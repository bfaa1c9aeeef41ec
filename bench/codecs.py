"""Two codecs for WebSocket frames with one interface: ours, and the `websockets` package without its I/O, which is the
fastest way to use it. Both begin after the handshake."""

from collections.abc import Callable
from typing import Protocol

from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.frames import Opcode as PackageOpcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from sandbox.protocol.websocket_frames import BINARY, TEXT, FrameReader, client_frame, frame

MAX_MESSAGE = 4 << 20
_MESSAGES = (PackageOpcode.TEXT, PackageOpcode.BINARY)
_URI = parse_uri("ws://127.0.0.1/")


class Codec(Protocol):
    """One connection's frames."""

    def read(self, data: bytes) -> list[bytes]:
        """The payloads of the messages that `data` completes. Control frames are skipped."""
        ...

    def write(self, payload: bytes) -> bytes:
        """The bytes of a text message."""
        ...


class OwnCodec:
    """Uses the frames of sandbox/protocol/websocket_frames.py."""

    __slots__ = ("_reader", "_write")

    def __init__(self, *, client: bool) -> None:
        self._reader = FrameReader(MAX_MESSAGE, 1, masked=not client)
        self._write: Callable[[int, bytes], bytes] = client_frame if client else frame

    def read(self, data: bytes) -> list[bytes]:
        reader, found = self._reader, []
        reader.feed(data)
        while (message := reader.read()) is not None:
            if message[0] in (TEXT, BINARY):
                found.append(message[1])
        return found

    def write(self, payload: bytes) -> bytes:
        return self._write(TEXT, payload)


class PackageCodec:
    """Uses the frames of the `websockets` package, without extensions."""

    __slots__ = ("_protocol",)

    def __init__(self, *, client: bool) -> None:
        self._protocol: ClientProtocol | ServerProtocol
        if client:
            self._protocol = ClientProtocol(_URI, state=State.OPEN, max_size=MAX_MESSAGE)
        else:
            self._protocol = ServerProtocol(state=State.OPEN, max_size=MAX_MESSAGE)

    def read(self, data: bytes) -> list[bytes]:
        self._protocol.receive_data(data)
        return [
            bytes(event.data)
            for event in self._protocol.events_received()
            if isinstance(event, Frame) and event.opcode in _MESSAGES
        ]

    def write(self, payload: bytes) -> bytes:
        self._protocol.send_text(payload)
        return b"".join(self._protocol.data_to_send())
