"""Forwards requests to hosts: tunnels (`CONNECT host:port`) and plain requests (`GET http://host/path`).

A tunnel passes bytes both ways without reading them. A plain request is written again, with the checked host as its
Host; one request goes over one connection, so that the next one is checked, too.
"""

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import urlsplit

from gateway.egress import head as heads
from gateway.egress.addresses import Inner
from gateway.egress.body import send_body
from gateway.egress.dialer import Dialer, NotInner, NotPublic
from gateway.egress.head import NotServed, RequestHead, TargetForm
from gateway.egress.policy import BadHost, Policy, entry, host_and_port
from gateway.egress.stream import ByteStream, StreamLost
from gateway.egress.turn_share import TurnShare

IDLE_SECONDS = 600.0
CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"

OnDenied = Callable[[Policy, str, int, str, str], None]  # policy, host, port, reason, the entry that a list would need


class Forwarder:
    def __init__(self, dialer: Dialer, denied: OnDenied) -> None:
        self._dialer = dialer
        self._denied = denied

    async def forward(self, policy: Policy, head: RequestHead, near: ByteStream, share: TurnShare) -> None:
        """Serve the request, with the session's `share`. Raises NotServed before anything was answered."""
        try:
            host, port, path = _target(head)
        except BadHost as exc:
            raise NotServed(400, str(exc)) from None
        far = await self._dial(policy, host, port)
        try:
            if head.form is TargetForm.CONNECT:
                await near.write(CONNECTED)
                await both_ways(near, far, share)
            else:
                await _request(head, host, port, path, near, far, share)
        except (StreamLost, TimeoutError):
            pass
        finally:
            far.close()

    async def _dial(self, policy: Policy, host: str, port: int) -> ByteStream:
        if not policy.network.allows(host, port):
            if policy.network.everything and self._dialer.inner != Inner():
                with contextlib.suppress(NotInner):
                    return await self._dialer.dial(policy.session, host, port, only_inner=True)
            reason = denial(policy, host, port)
            self._denied(policy, host, port, reason, entry(host, port))
            raise NotServed(403, reason)
        try:
            return await self._dialer.dial(policy.session, host, port)
        except NotPublic as exc:
            self._denied(policy, host, port, str(exc), "")
            raise


def denial(policy: Policy, host: str, port: int) -> str:
    """Why a host is not allowed, and the setting that would allow it."""
    wanted = entry(host, port)
    if policy.network.everything:
        return f'{host}:{port} is no port of the web: name it, network: {{"allow": ["{wanted}"]}} (HOLDFAST_NETWORK)'
    if not policy.network.hosts:
        return (
            f"{host} is not allowed: this session has network: none. "
            f'{{"allow": ["{wanted}"]}} allows it (HOLDFAST_NETWORK)'
        )
    listed = f'"{wanted}" in the allow of its network (HOLDFAST_NETWORK)'
    return f"{host}:{port} is not on this session's list: {listed} allows it"


class _Silence:
    """How long no byte has come from either end: a long download is silent one way, and its client may go on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._broken = self._loop.time()

    async def read(self, source: ByteStream) -> bytes:
        """Raises TimeoutError."""
        while True:
            until = self._broken + IDLE_SECONDS
            try:
                async with asyncio.timeout_at(until):
                    piece = await source.read()
            except TimeoutError:
                if self._broken + IDLE_SECONDS <= until:
                    raise
            else:
                self._broken = self._loop.time()
                return piece


async def both_ways(near: ByteStream, far: ByteStream, share: TurnShare) -> None:
    """Pass bytes until the far end has closed, both have, or no byte has come from either for a long time."""
    silence = _Silence()
    up = asyncio.create_task(_pump(near, far, share, silence), name="egress.up")
    try:
        await _pump(far, near, share, silence)
    finally:
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)


async def _pump(source: ByteStream, target: ByteStream, share: TurnShare, silence: _Silence) -> None:
    while True:
        piece = await silence.read(source)
        if not piece:
            return target.end_writing()
        await share.take(len(piece))
        async with asyncio.timeout(IDLE_SECONDS):
            await target.write(piece)


async def _request(
    head: RequestHead, host: str, port: int, path: str, near: ByteStream, far: ByteStream, share: TurnShare
) -> None:
    name = f"[{host}]" if ":" in host else host
    named = name if port == 80 else f"{name}:{port}"
    own = [(b"Host", named.encode()), *heads.end_to_end(head.headers, b"host"), (b"Connection", b"close")]
    await far.write(heads.request(head.method, path, own))
    up = asyncio.create_task(send_body(head, near, far, share), name="egress.body")
    try:
        await _pump(far, near, share, _Silence())
    finally:
        up.cancel()
        await asyncio.wait({up})


def _target(head: RequestHead) -> tuple[str, int, str]:
    """Host, port and path. Raises BadHost."""
    if head.form is TargetForm.CONNECT:
        return (*host_and_port(head.target), "")
    try:
        url = urlsplit(head.target)
    except ValueError:
        raise BadHost("this is no address of a page") from None
    if "@" in url.netloc or "#" in head.target or not url.netloc:
        raise BadHost("an address has a host, no user and no fragment")
    path = head.target[len("http://") + len(url.netloc) :]
    return (*host_and_port(url.netloc, 80), path if path.startswith("/") else f"/{path}")
