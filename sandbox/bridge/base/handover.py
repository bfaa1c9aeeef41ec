"""Gives an accepted WebSocket's connection to a protocol of our own.

uvicorn and Starlette do HTTP, the token, routing and refusal. After the accept they take no part: output of the agent
or a terminal is written to the transport as it comes, without a task, a queue or an event for each message.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

PATHS = ("/agent", "/terminals/")  # connections to these paths are handed over
EARLY_BYTES = 64 * 1024  # that may come before; a connection that brings more is cut

_EXTENSION = "holdfast.handover"

Taker = Callable[[asyncio.Transport, bytes], None]


def hand_over(scope: Scope, taker: Taker) -> None:
    """After the accept: give `taker` the transport, and the bytes that came since the handshake. It sets its own
    protocol and owns the connection from there on."""
    scope["extensions"][_EXTENSION](taker)


class HandoverSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, except for the paths that are handed over."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._early: bytearray | None = None

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent and self.scope["path"].startswith(PATHS):
            self._early = bytearray()
            cast(dict[str, Any], self.scope["extensions"])[_EXTENSION] = self._hand_over

    def data_received(self, data: bytes) -> None:
        if self._early is None:
            super().data_received(data)
        elif len(self._early) + len(data) > EARLY_BYTES:
            self.transport.abort()
        else:
            self._early += data

    def _hand_over(self, taker: Taker) -> None:
        assert self._early is not None, "not one of the paths"
        if self.disconnected or self.transport.is_closing():
            raise ConnectionResetError("gone before the handover")
        self.connections.discard(self)  # at the server's end the new owner closes it
        early, self._early = bytes(self._early), None
        taker(self.transport, early)
