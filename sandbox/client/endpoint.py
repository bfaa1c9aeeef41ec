"""How to reach one bridge. Every client of a bridge dials through an Endpoint: link, tree, terminals, files, exec.

Nothing else in this package knows what lies between the gateway and a bridge. An Endpoint is one address: where to
dial, the prefix of each path, and headers for each request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from websockets.asyncio.client import ClientConnection, connect

from sandbox.ports.link import LinkRefused

P = TypeVar("P", bound=asyncio.Protocol)


class Endpoint(Protocol):
    """Constructing one does no I/O. It stays valid while the bridge it was found for runs."""

    @property
    def prefix(self) -> str:
        """Goes before every path; "" or a path without a slash at its end."""
        ...

    @property
    def host(self) -> str:
        """The Host header of every request."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers for every request: the bridge's token, and those that a relay in between needs. Secret."""
        ...

    async def dial(self, factory: Callable[[], P]) -> P:
        """Connect a new protocol to the bridge, like `loop.create_connection`; return it after its `connection_made`.
        Raises OSError."""
        ...


Find = Callable[[], Awaitable[Endpoint]]  # of a sandbox that runs; raises LinkRefused if none does, SandboxUnavailable


@dataclass(frozen=True, slots=True)
class UnixEndpoint:
    """A unix socket on this host."""

    path: str
    token: str = field(default="", repr=False)

    prefix = ""
    host = "bridge"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    async def dial(self, factory: Callable[[], P]) -> P:
        return (await asyncio.get_running_loop().create_unix_connection(factory, self.path))[1]


class BridgeConnection(asyncio.Protocol):
    """The gateway's end of a connection to a bridge."""

    __slots__ = ()

    def close(self) -> None:
        """Close it; the owner gets no further event."""
        raise AssertionError("every link has its own")


L = TypeVar("L", bound=BridgeConnection)


async def open_link(endpoint: Endpoint, link: L, opened: "asyncio.Future[None]", seconds: float) -> L:
    """Connect `link`; it is returned when `opened` says so. Raises LinkRefused; then the link is closed."""
    try:
        async with asyncio.timeout(seconds):
            await endpoint.dial(lambda: link)
            await opened
    except TimeoutError:
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            return link  # at the last moment: its owner has heard of it already
        link.close()
        raise LinkRefused("the bridge does not answer") from None
    except OSError as exc:
        link.close()
        raise LinkRefused(f"the bridge cannot be reached: {exc.strerror or exc}") from exc
    except BaseException:
        link.close()
        raise
    return link


async def open_websocket(endpoint: Endpoint, path: str, **options: Any) -> ClientConnection:
    """A connection of the `websockets` library. Raises what `websockets.asyncio.client.connect` raises."""
    return await _Dialled(endpoint, path, **options)


class _Dialled(connect):
    """The library's `connect`, over an Endpoint. It follows no redirect: a bridge has nowhere to send us."""

    def __init__(self, endpoint: Endpoint, path: str, **options: Any) -> None:
        uri = f"ws://{endpoint.host}{endpoint.prefix}{path}"
        super().__init__(uri, additional_headers=endpoint.headers, proxy=None, **options)
        self._endpoint = endpoint

    async def open_tcp_connection(self) -> ClientConnection:
        return await self._endpoint.dial(lambda: self.factory(self.ws_uri))

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc
