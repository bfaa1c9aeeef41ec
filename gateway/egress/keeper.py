"""The gateway's end of the proxy: keeps a proxy running, and sends it every session's policy and listener.

A running proxy of an earlier gateway is taken over, with its open connections. One with other code is asked to retire,
and a new one takes its place. One that has ended is started again, at once and then with growing pauses, and gets
everything again: each sandbox has kept its listener, and gives it once more. Clients that connect meanwhile wait in the
listener's backlog.
"""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from gateway.egress import messages, process
from gateway.egress.channel import Channel, is_listener
from gateway.egress.messages import (
    VERSION,
    BadMessage,
    Denied,
    EgressMessage,
    KeepOnly,
    Listener,
    PartNote,
    Retire,
    SetPolicy,
    Setup,
    TakeAway,
    Welcome,
)
from gateway.egress.policy import Policy
from persistence.backoff import delay

log = structlog.get_logger()

WELCOME_SECONDS = 20.0
GIVEN_AT_ONCE = 16
AGAIN_SECONDS = 1.0  # between two attempts to get a sandbox's listener

Give = Callable[[], Awaitable[socket.socket | None]]  # a sandbox's listener; None: it has none. Raises OSError
OnNote = Callable[[msgspec.Raw], None]


class EgressKeeper:
    """`on_denied` is called for refused hosts; `on_note[part]` gets the notes of that part of the proxy."""

    def __init__(
        self,
        run: Path,
        setup: Setup,
        *,
        on_denied: Callable[[Denied], None] = lambda denied: None,
        on_note: dict[str, OnNote] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._run = run
        self._setup = setup
        self._on_denied = on_denied
        self.on_note = dict(on_note or {})
        self.on_proxy: list[Callable[[], None]] = []  # called when a proxy was found or started, and knows the sessions
        self._rng = rng or random.Random()
        self._sessions: dict[str, tuple[Policy, Give]] = {}
        self._giving: dict[str, asyncio.Task[None]] = {}
        self._gate = asyncio.Semaphore(GIVEN_AT_ONCE)
        self._kept: frozenset[str] | None = None  # None until the gateway knows which sandboxes run
        self._channel: Channel | None = None
        self._welcome: asyncio.Future[Welcome] | None = None
        self._lost = asyncio.Event()
        self._needed = asyncio.Event()  # a sandbox is there to be served
        self._task: asyncio.Task[None] | None = None
        self.proxy: int | None = None  # its pid, while there is one

    async def __aenter__(self) -> "EgressKeeper":
        self._task = asyncio.create_task(self._keep_running(), name="egress")
        return self

    async def __aexit__(self, *error: object) -> None:
        """The proxy goes on."""
        tasks = [task for task in (self._task, *self._giving.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def need(self) -> None:
        """Have a proxy run, also while no sandbox needs one."""
        self._needed.set()

    def attach(self, policy: Policy, give: Give) -> None:
        """A sandbox runs: serve it by this policy, at the listener that it gives."""
        self._sessions[policy.session] = policy, give
        self.need()
        if self._channel is not None:
            self._tell_session(policy.session)

    def set_policy(self, policy: Policy) -> None:
        """Change the policy of an attached session, from the next request on."""
        if (known := self._sessions.get(policy.session)) is not None:
            self._sessions[policy.session] = policy, known[1]
            self._send(SetPolicy(policy))

    def policy(self, session: str) -> Policy | None:
        known = self._sessions.get(session)
        return None if known is None else known[0]

    def policies(self) -> list[Policy]:
        """The policies of all attached sessions."""
        return [policy for policy, _ in self._sessions.values()]

    def take_away(self, session: str) -> None:
        """Its sandbox has ended."""
        self._sessions.pop(session, None)
        if (giving := self._giving.pop(session, None)) is not None:
            giving.cancel()
        self._send(TakeAway(session))

    def keep(self, running: Iterable[str]) -> None:
        """These are all the sandboxes that run: the proxy drops the others."""
        self._kept = frozenset(running)
        self._send(KeepOnly(tuple(self._kept | self._sessions.keys())))

    def note(self, part: str, body: Any) -> bool:
        """Send a note to a part of the proxy; return whether it was sent."""
        return self._send(PartNote(part, msgspec.Raw(msgspec.json.encode(body))))

    # -- the process --------------------------------------------------------------------------------------------------

    async def _keep_running(self) -> None:
        attempt = 0
        if not await asyncio.to_thread(self._one_runs):
            await self._needed.wait()
        while True:
            try:
                await self._find_or_start()
                attempt = 0
                await self._lost.wait()
                log.warning("egress.proxy_lost", pid=self.proxy)
            except (OSError, TimeoutError, BadMessage) as error:
                log.warning("egress.proxy_unavailable", cause=str(error) or type(error).__name__)
            self._drop()
            await asyncio.sleep(delay(attempt, base=0.05, cap=10.0, rng=self._rng) if attempt else 0)
            attempt += 1

    def _one_runs(self) -> bool:
        note = process.noted(self._run)
        return note is not None and note.runs

    async def _find_or_start(self) -> None:
        release = await asyncio.to_thread(process.release)
        note = await asyncio.to_thread(process.noted, self._run)
        if note is not None and note.runs:
            with contextlib.suppress(OSError, TimeoutError):
                welcome = await self._connect()
                if (welcome.version, welcome.release) == (VERSION, release):
                    return self._found(welcome, started=False)
                self._send(Retire())
                log.info("egress.proxy_retires", pid=welcome.pid)
            self._drop()
        note = await asyncio.to_thread(process.start, self._run, os.environ)
        self._found(await self._connect(), started=True)

    async def _connect(self) -> Welcome:
        """Connect to the proxy and wait for its welcome. Raises OSError, TimeoutError."""
        self._lost.clear()
        self._welcome = asyncio.get_running_loop().create_future()
        self._channel = Channel(process.knock(self._run), self._heard, self._on_lost)
        async with asyncio.timeout(WELCOME_SECONDS):
            return await self._welcome

    def _found(self, welcome: Welcome, *, started: bool) -> None:
        self.proxy = welcome.pid
        log.info("egress.proxy", pid=welcome.pid, started=started, sessions=len(welcome.sessions))
        self._send(self._setup)
        if self._kept is not None:
            self._send(KeepOnly(tuple(self._kept | self._sessions.keys())))
        for session in list(self._sessions):
            self._tell_session(session)
        for hear in self.on_proxy:
            hear()

    def _drop(self) -> None:
        self.proxy = None
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        for task in self._giving.values():
            task.cancel()
        self._giving.clear()

    def _on_lost(self) -> None:
        self._lost.set()
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(ConnectionError("the proxy ended at once: see run/egress.log"))

    # -- messages -----------------------------------------------------------------------------------------------------

    def _send(self, message: EgressMessage, descriptor: int = -1) -> bool:
        """Send a message. A proxy that takes none counts as lost: the next one, or the same, gets everything again. A
        message that no packet can hold is dropped: a session whose keys are too long together keeps its old policy."""
        if self._channel is None:
            return False
        try:
            packet = messages.encode(message)
        except BadMessage as error:  # one session's: the others go on
            log.warning("egress.message_too_long", kind=type(message).__name__, cause=str(error))
            return False
        if self._channel.send(packet, descriptor):
            return True
        self._lost.set()
        return False

    def _tell_session(self, session: str) -> None:
        policy, give = self._sessions[session]
        self._send(SetPolicy(policy))
        if (earlier := self._giving.pop(session, None)) is not None:
            earlier.cancel()
        task = asyncio.create_task(self._give(session, give), name=f"egress.give {session}")
        self._giving[session] = task

        def over(done: asyncio.Task[None]) -> None:
            if self._giving.get(session) is done:
                del self._giving[session]

        task.add_done_callback(over)

    async def _give(self, session: str, give: Give) -> None:
        while True:
            try:
                async with self._gate:
                    listener = await give()
                break
            except (OSError, TimeoutError) as error:
                log.debug("egress.no_listener", session_id=session, cause=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
        if listener is None:
            return
        with listener:
            if is_listener(listener):
                self._send(Listener(session), listener.fileno())
            else:
                log.warning("egress.bad_listener", session_id=session)

    def _heard(self, packet: bytes, given: socket.socket | None) -> None:
        if given is not None:
            given.close()
        try:
            message = messages.to_gateway(packet)
        except BadMessage as error:
            if self._welcome is not None and not self._welcome.done():
                self._welcome.set_exception(ConnectionError(str(error)))
            return
        match message:
            case Welcome():
                if self._welcome is not None and not self._welcome.done():
                    self._welcome.set_result(message)
            case Denied():
                self._on_denied(message)
            case PartNote(part, body):
                if (hear := self.on_note.get(part)) is not None:
                    hear(body)
