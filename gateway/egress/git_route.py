"""The route to a session's repository: clone, fetch and push, with a token that the sandbox does not have.

Requests and answers are streamed: a push and a clone have any length. A request without a body goes out again with
another token if the first one was refused. One connection serves one request.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from gateway.egress.body import send_body
from gateway.egress.head import Headers, NotServed, end_to_end, request
from gateway.egress.model_requests import head_back
from gateway.egress.model_settings import ProviderKey, RouteSettings, read_route
from gateway.egress.origins import SILENT_SECONDS, OriginDialer, read_more
from gateway.egress.repositories import GitRepository, basic, git_request
from gateway.egress.routes import Exchange
from gateway.egress.stream import ByteStream, StreamLost
from sandbox.client.http1 import HttpResponse

_NOT_ON = (b"host", b"authorization", b"cookie", b"content-length", b"transfer-encoding", b"expect", b"accept-encoding")
_NOT_BACK = b"www-authenticate"  # git would ask a person for a password
_REFUSED = (401, 403, 404)  # hosts answer "not found" for hidden repositories

Renew = Callable[[str, RouteSettings], Awaitable[ProviderKey]]


class GitRoute:
    """Implements gateway.egress.routes.Route. `renew` asks the gateway for a token."""

    def __init__(self, dialer: OriginDialer, renew: Renew) -> None:
        self._dialer = dialer
        self._renew = renew

    async def serve(self, exchange: Exchange) -> None:
        try:
            settings = read_route(exchange.settings)
        except msgspec.MsgspecError:
            raise NotServed(404, "this session has no repository") from None
        host, _, path = settings.repository.partition("/")
        asked = git_request(GitRepository(host, path), exchange.head.method, exchange.path)
        if asked is None:
            only = f"only clone, fetch and push of https://{settings.repository} pass here"
            raise NotServed(403, f"{only}: it is this session's repoUrl")
        session = exchange.policy.session
        if not settings.key:
            settings = settings.with_key(await self._renew(session, settings))
        for again in (False, True):
            far = await self._dialer.dial(session, settings.provider)
            try:
                answer, pieces = await self._ask(exchange, settings, asked.target, far)
                has_no_body = exchange.head.length == 0
                if answer.status in _REFUSED and has_no_body and not again:
                    key = await self._renew(session, settings)
                    if key.key and key.key != settings.key:
                        settings = settings.with_key(key)
                        continue
                return await self._pass_on(exchange, settings, far, answer, pieces)
            finally:
                far.close()

    def heard(self, body: msgspec.Raw) -> None:
        """The route to models receives the notes for both."""

    def forget(self, session: str) -> None:
        """Does nothing: this route keeps no state of a session."""

    async def _ask(
        self, exchange: Exchange, settings: RouteSettings, target: str, far: ByteStream
    ) -> tuple[HttpResponse, deque[bytes]]:
        """Send the request, and return its answer's head, with the bytes that came after it."""
        head, provider = exchange.head, settings.provider
        if head.expects_continue:
            await exchange.stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        words = request(
            head.method,
            provider.base_path + target,
            _headers(settings, end_to_end(head.headers, *_NOT_ON), head.length),
        )
        await far.write(words)
        sending = asyncio.create_task(send_body(head, exchange.stream, far, exchange.share), name="egress.push")
        answer, pieces = HttpResponse(), deque[bytes]()
        try:
            while not answer.has_head:
                await read_more(far, answer, pieces)
        finally:
            if answer.has_head and answer.status < 300 and not sending.done():
                await asyncio.wait({sending}, timeout=SILENT_SECONDS)
            sending.cancel()
            await asyncio.wait({sending})
        return answer, pieces

    async def _pass_on(
        self, exchange: Exchange, settings: RouteSettings, far: ByteStream, answer: HttpResponse, pieces: deque[bytes]
    ) -> None:
        near = exchange.stream
        if 300 <= answer.status < 400:
            raise NotServed(502, f"{settings.repository} has moved: its host answered with a redirect")
        if answer.status in _REFUSED and not settings.key:
            told = f"{settings.provider.host} does not show {settings.repository} without a credential"
            raise NotServed(403, f"{told}: `holdfast credentials set {settings.name}` keeps one")
        headers = {name: value for name, value in answer.headers.items() if name != _NOT_BACK}
        status = 403 if answer.status == 401 else answer.status
        await near.write(head_back(status, headers, length=None))
        while True:
            while pieces:
                piece = pieces.popleft()
                await exchange.share.take(len(piece))
                await near.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if answer.is_over:
                return await near.write(b"0\r\n\r\n")
            try:
                await read_more(far, answer, pieces)
            except (OSError, TimeoutError) as error:
                raise StreamLost("the answer broke off") from error


def _headers(settings: RouteSettings, came: Headers, length: int | None) -> Headers:
    headers = [(b"Host", settings.provider.authority.encode()), *came, (b"Accept-Encoding", b"identity")]
    if settings.key:
        headers.append((b"Authorization", b"Basic " + basic(settings.key_user, settings.key).encode()))
    if length is None:
        headers.append((b"Transfer-Encoding", b"chunked"))
    elif length:
        headers.append((b"Content-Length", b"%d" % length))
    return [*headers, (b"Connection", b"close")]
