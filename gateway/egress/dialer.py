"""Connections from the proxy to hosts: looked up once, the addresses checked, and these dialled.

Bounds: LOOKUPS names are looked up at once, LOOKUPS_OF_ONE of one session: a name whose server does not answer holds
up no other session's. A session whose look-ups are all under way waits for one of its own, DIAL_SECONDS in all.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

from gateway.egress.addresses import Inner, refused
from gateway.egress.head import NotServed
from gateway.egress.stream import ByteStream

LOOKUPS, LOOKUPS_OF_ONE = 32, 4
DIAL_SECONDS = 10.0

Address = tuple[socket.AddressFamily, tuple[str, int]]


class Dialer:
    def __init__(self) -> None:
        self.inner = Inner()
        self._threads = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="lookup")
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def dial(
        self,
        session: str,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        trusted: bool = False,
        only_inner: bool = False,
    ) -> ByteStream:
        """A connection to `host`, as `policy.host_name` returns it. `trusted`: the operator named the host, and any
        address of it will do. `only_inner`: no public one. Raises NotServed."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                found = await self._look_up(session, host, port)
        except TimeoutError:
            raise NotServed(504, f"{host}: its name was not looked up within {DIAL_SECONDS:g} s") from None
        except OSError as exc:
            if only_inner:
                raise NotInner(403, f"{host} is no host of an inner network") from None
            raise NotServed(502, f"{host} was not found: {exc.strerror or exc}") from None
        addresses = [address[0] for _, address in found]
        wrong = None if trusted else refused(host, port, addresses, self.inner, only_inner=only_inner)
        if wrong is None and not trusted:  # a public address of this host leads to all that listens here
            wrong = refused(host, port, [each for each in addresses if is_own(each)], self.inner, only_inner=True)
        if wrong is not None and only_inner:
            raise NotInner(403, f"{host} is no host of an inner network")
        if wrong is not None:
            said = host if wrong == host else f"{host} has the address {wrong}, which"
            raise NotPublic(
                403, f"{said} is not on the public internet: the operator can allow it (HOLDFAST_NETWORK_INNER)"
            )
        return await self._connect(found, host, port, tls)

    def forget(self, session: str) -> None:
        self._turns.pop(session, None)

    async def _look_up(self, session: str, host: str, port: int) -> list[Address]:
        turns = self._turns.setdefault(session, asyncio.Semaphore(LOOKUPS_OF_ONE))
        await turns.acquire()
        looking = self._threads.submit(_addresses, host, port)
        loop = asyncio.get_running_loop()
        # A thread cannot be stopped: the turn is over when it ends, not when nobody waits for it any more.
        looking.add_done_callback(lambda _: _in_loop(loop, turns.release))
        return await asyncio.wrap_future(looking)

    async def _connect(self, found: list[Address], host: str, port: int, tls: ssl.SSLContext | None) -> ByteStream:
        loop = asyncio.get_running_loop()
        failed = "it has no address"
        for family, address in found:
            connection = socket.socket(family, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                async with asyncio.timeout(DIAL_SECONDS):
                    await loop.sock_connect(connection, address)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    name = host if tls is not None else None
                    return (await loop.create_connection(ByteStream, sock=connection, ssl=tls, server_hostname=name))[1]
            except TimeoutError:
                failed = f"no answer within {DIAL_SECONDS:g} s"
            except ssl.SSLCertVerificationError as exc:
                failed = f"its certificate is not valid: {exc.verify_message}"
            except OSError as exc:
                failed = exc.strerror or str(exc)
            connection.close()
        raise NotServed(502, f"{host}:{port} cannot be reached: {failed}")


class NotInner(NotServed):
    """The host is not one that may be reached at every port."""


class NotPublic(NotServed):
    """The policy allows the host, and its address does not."""


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call)


def is_own(address: str) -> bool:
    """True for an address of this host: packets to it have it as their source, too."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing
            return bool(ip_address(probe.getsockname()[0].partition("%")[0]) == ip_address(address.partition("%")[0]))
        except OSError:  # there is no way to it
            return False


def _addresses(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, (str(address[0]), port)) for family, _, _, _, address in found))
