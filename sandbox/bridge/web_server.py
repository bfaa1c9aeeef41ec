"""uvicorn for a bridge: it gets connections, and has no listening socket of its own."""

import asyncio
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp


class WebServer:
    """`caller` is the protocol of a new connection."""

    def __init__(self, app: ASGIApp, sockets: type[asyncio.Protocol], max_message: int) -> None:
        """`sockets` is uvicorn's WebSocket class; a message on one has at most `max_message` bytes."""
        self._config = uvicorn.Config(
            app,
            loop="none",
            http="httptools",
            ws=sockets,
            ws_max_size=max_message,
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        self._config.load()
        self._server = uvicorn.Server(self._config)
        self._server.lifespan = self._config.lifespan_class(self._config)
        self._server.servers = []

    def caller(self) -> asyncio.Protocol:
        kind: Callable[..., asyncio.Protocol] = self._config.http_protocol_class
        return kind(config=self._config, server_state=self._server.server_state, app_state={})

    def take(self, transport: asyncio.Transport, heard: bytes) -> None:
        """A connection that was accepted elsewhere; `heard` are the bytes already read of it."""
        protocol = self.caller()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(heard)

    async def close(self) -> None:
        """Close every connection, each within a second."""
        await self._server.shutdown()
