"""The proxy: accepts on the listeners it is handed, reads a head, and passes the request to its handler.

`CONNECT host:port` and `http://host/path` go to the forwarder, `/name/...` to the route of that name. One connection
serves one request. A head has HEAD_SECONDS to come, and MAX_HEAD bytes.
"""

import asyncio
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable

import msgspec

from gateway.egress.addresses import parse_inner
from gateway.egress.dialer import Dialer
from gateway.egress.forwarder import Forwarder
from gateway.egress.head import MAX_HEAD, NotServed, TargetForm, answer, read
from gateway.egress.messages import Denied, Setup
from gateway.egress.policy import Policy
from gateway.egress.routes import Exchange, Routes
from gateway.egress.sessions import EgressSession, last_words
from gateway.egress.stream import ByteStream, StreamLost

HEAD_SECONDS = 30.0
MOST_DENIED = 1000  # hosts that are counted and not reported yet
DENIED_OF_ONE = 60  # hosts of one session that are reported in a minute


class Proxy:
    """`tell` sends a report to the gateway."""

    def __init__(self, routes: Routes, tell: Callable[[Denied], None]) -> None:
        self.setup = Setup()
        self.sessions: dict[str, EgressSession] = {}
        self.routes = routes
        self.dialer = Dialer()
        self._forwarder = Forwarder(self.dialer, self._denied)
        self._tell = tell
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """The number of open connections, those of sessions that were taken away included."""
        return sum(session.connections for session in self.sessions.values()) + len(self._closing)

    def configure(self, setup: Setup) -> None:
        """Raises BadHost."""
        self.dialer.inner = parse_inner(setup.inner)
        self.setup = setup

    def set_policy(self, policy: Policy) -> None:
        if (known := self.sessions.get(policy.session)) is not None:
            known.policy = policy
        else:
            self.sessions[policy.session] = EgressSession(policy, self._serve, lambda: self.setup.connections)

    def listen(self, session: str, listener: socket.socket) -> bool:
        """True if the session is known; otherwise the listener is closed."""
        if (known := self.sessions.get(session)) is None:
            listener.close()
            return False
        known.listen(listener)
        return True

    def take_away(self, session: str) -> None:
        if (known := self.sessions.pop(session, None)) is None:
            return
        task = asyncio.get_running_loop().create_task(known.close(), name=f"egress.close {session}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self.dialer.forget(session)
        self.routes.forget(session)

    def keep(self, sessions: set[str]) -> None:
        for session in self.sessions.keys() - sessions:
            self.take_away(session)

    def stop_listening(self) -> None:
        for session in self.sessions.values():
            session.stop_listening()

    async def _serve(self, session: EgressSession, near: ByteStream) -> None:
        try:
            await self._answer(session, near)
        except NotServed as refusal:
            await last_words(near, answer(refusal.status, str(refusal)))
        except StreamLost:
            near.abort()

    async def _answer(self, session: EgressSession, near: ByteStream) -> None:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                text = await near.read_until(b"\r\n\r\n", MAX_HEAD)
        except TimeoutError:
            raise NotServed(408, f"no whole request within {HEAD_SECONDS:g} s") from None
        if text is None:
            raise NotServed(431, f"the head of a request has at most {MAX_HEAD // 1024} KiB")
        head = read(text)
        policy = session.policy
        if head.form is not TargetForm.ORIGIN:
            return await self._forwarder.forward(policy, head, near, session.share)
        route, settings, path = self.routes.find(policy, head.target)
        try:
            await route.serve(Exchange(policy, settings, head, path, near, session.share))
        except TimeoutError:
            raise NotServed(504, "no answer in time") from None
        except StreamLost:
            raise
        except OSError as exc:
            raise NotServed(502, exc.strerror or str(exc)) from exc

    def _denied(self, policy: Policy, host: str, port: int, reason: str, entry: str) -> None:
        self._tell(Denied(policy.session, host, port, reason, entry))


class Denials:
    """Reports each refused host at once, and then once in `seconds` with its count. Bound: MOST_DENIED hosts; above,
    the one that was counted longest ago is forgotten, and so reported at once when it comes again. Of one session
    DENIED_OF_ONE hosts are reported in `seconds`, so that none fills the log; further ones are not."""

    def __init__(self, send: Callable[[Denied], bool], *, seconds: float = 60.0) -> None:
        self._send, self._seconds = send, seconds
        self._told: OrderedDict[tuple[str, str, int], list[float]] = OrderedDict()
        self._began, self._reported = float("-inf"), Counter[str]()

    def tell(self, denied: Denied) -> None:
        now = asyncio.get_running_loop().time()
        key = (denied.session, denied.host, denied.port)
        at, times = self._told.get(key, (float("-inf"), 0))
        if now - at < self._seconds:
            self._told[key] = [at, times + 1]
            return
        if now - self._began >= self._seconds:
            self._began, self._reported = now, Counter[str]()
        if self._reported[denied.session] >= DENIED_OF_ONE:
            return
        self._reported[denied.session] += 1
        if self._send(msgspec.structs.replace(denied, times=int(times) + 1)):
            self._told[key] = [now, 0]
            self._told.move_to_end(key)
        while len(self._told) > MOST_DENIED:
            self._told.popitem(last=False)
