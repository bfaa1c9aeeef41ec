"""How the gateway introduces itself to a bridge: the client's half of a WebSocket handshake, with the bridge's token.
Pure: `websockets` knows the rules."""

import logging

from websockets.client import ClientProtocol
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from sandbox.client.endpoint import Endpoint
from sandbox.ports.link import LinkRefused

MAX_HEAD = 64 * 1024  # of the bridge's answer

_silent = logging.getLogger("holdfast.link.websockets")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False
_silent.setLevel(logging.CRITICAL)  # LinkRefused reports what a hostile bridge provokes


class Handshake:
    """One handshake. Useless afterwards, and dropped then: it is a good part of a connection's cost."""

    __slots__ = ("_head", "_protocol", "request")

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        uri = parse_uri(f"ws://{endpoint.host}{endpoint.prefix}{path}")
        self._protocol = ClientProtocol(uri, logger=_silent)
        request = self._protocol.connect()
        request.headers.update(endpoint.headers)
        self._protocol.send_request(request)
        self.request = b"".join(self._protocol.data_to_send())
        self._head = b""

    def feed(self, data: bytes) -> bytes | None:
        """Take some of the answer in. When it is complete, return the bytes behind it. Raises LinkRefused."""
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD:
            raise LinkRefused("no bridge answers there")
        if not end:
            return None
        if head.startswith(b"HTTP/1.1 101 "):
            self._protocol.receive_data(head + end)
        if self._protocol.state is OPEN:
            return rest
        status = head[9:12].decode("ascii", "replace")
        raise LinkRefused("the bridge refuses our token" if status == "401" else f"no bridge answers there ({status})")
