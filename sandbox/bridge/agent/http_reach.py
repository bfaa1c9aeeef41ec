"""How the bridge reaches an agent that is an HTTP server on the sandbox's loopback: requests, and a stream of events.

In order: the bridge reads the port from the server's output; it asks for the server's health, again and again with
short timeouts, because some servers never answer a request of their first instants; it reads the events; it sends
requests. Requests wait for that. A stream that breaks while the server lives is opened anew, less and less often if it
breaks soon each time. The caller owns the process and reports its end (`end`); the reach then reads the rest of the
stream.

Each request has its own connection. A request without an answer is reported a moment later, and not at all if the
server has ended meanwhile, which is the cause then. So is a request beyond MAX_REQUESTS or MAX_BODIES. After
MAX_REFUSED of those, which only a server can cause that sends events without end, the server is given up.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from sandbox.agents.core import Http, HttpServer
from sandbox.bridge.agent.http_answer import AnswerReader, BadHttp, port_in, request
from sandbox.bridge.agent.long_lines import LONGEST, CutText
from sandbox.bridge.agent.server_events import EventSplitter
from sandbox.system.child import READ_BYTES
from sandbox.system.log import log

HOST = "127.0.0.1"
MAX_REQUESTS = 256  # requests that wait, or wait for their answers
MAX_BODIES = 8 << 20  # bytes of the waiting ones
MAX_REFUSED = 1024  # requests beyond these bounds that are not reported yet
START_SECONDS = 120.0  # until the server is healthy
PATIENCE_SECONDS = 1.0  # for the first health check; each further one has so much more
MOST_PATIENCE_SECONDS = 10.0
AGAIN_SECONDS, MOST_AGAIN_SECONDS = 0.1, 5.0
STEADY_SECONDS = 10.0  # a stream that lasted so long was a good one
SILENCE_SECONDS = 60.0  # of the stream: servers send a sign of life every few seconds
BROKEN_SECONDS = 1.0  # until a request without an answer is reported

OnEvents = Callable[[Sequence[bytes]], None]
OnAnswer = Callable[[str, int, bytes], None]
OnProblem = Callable[[str], None]


class HttpReach:
    """`on_events` gets the data of events; `on_answer` gets tag, status and body; `on_left_out` is called for an
    event that was too long, `on_failed` if the server cannot be reached, `on_done` when the stream is read to its
    end."""

    def __init__(
        self,
        server: HttpServer,
        password: str,
        *,
        on_events: OnEvents,
        on_answer: OnAnswer,
        on_left_out: Callable[[], None],
        on_failed: OnProblem,
        on_done: Callable[[], None],
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._server = server
        self._password = password
        self._on_events = on_events
        self._on_answer = on_answer
        self._on_left_out = on_left_out
        self._on_failed = on_failed
        self._on_done = on_done
        self._start_seconds = start_seconds
        self._port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting: asyncio.Queue[Http] = asyncio.Queue()
        self._bodies = 0
        self._open = 0  # requests that wait, or wait for their answers
        self._refused: list[str] = []  # tags of requests beyond the bounds
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._reads = 0  # of the stream
        self._ended = False
        self._given_up = False
        self.done = False
        self._answers: set[asyncio.Task[None]] = set()
        self._running = asyncio.create_task(self._run(), name="agent.server")
        self._running.add_done_callback(self._on_over)

    def said(self, line: bytes) -> None:
        """A line of the server's output."""
        if not self._port.done() and (port := port_in(line)) is not None:
            self._port.set_result(port)

    def ask(self, wanted: Http) -> None:
        """Send it when its turn comes."""
        if self._ended:
            return
        if self._open >= MAX_REQUESTS or self._bodies + len(wanted.body) > MAX_BODIES:
            self._refuse(wanted.tag)
        else:
            self._open += 1
            self._bodies += len(wanted.body)
            self._waiting.put_nowait(wanted)

    def _refuse(self, tag: str) -> None:
        if len(self._refused) < MAX_REFUSED:
            self._refused.append(tag)
        loop = asyncio.get_running_loop()
        if len(self._refused) == 1:
            loop.call_later(BROKEN_SECONDS, self._tell_refused)
        elif len(self._refused) == MAX_REFUSED and not self._given_up:
            self._given_up = True
            loop.call_soon(self._on_failed, "the agent's server made the bridge ask it for too much at once")

    def _tell_refused(self) -> None:
        tags, self._refused = self._refused, []
        for tag in tags:
            if not self._ended:
                self._on_answer(tag, 0, b"")

    def pause(self) -> None:
        """Read no more events for now."""
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    def end(self, drain_seconds: float) -> None:
        """The server has ended. Its events are read to the end, or until none has come for so long while somebody
        reads them."""
        if not self._ended:
            self._ended = True
            self._port.cancel()
            for task in self._answers:
                task.cancel()
            self._end_when_silent(drain_seconds)

    def _end_when_silent(self, seconds: float) -> None:
        seen, read_throughout = self._reads, self._may_read.is_set()

        def check() -> None:
            if read_throughout and self._may_read.is_set() and self._reads == seen:
                self._running.cancel()
            elif not self.done:
                self._end_when_silent(seconds)

        asyncio.get_running_loop().call_later(seconds, check)

    def _on_over(self, running: asyncio.Task[None]) -> None:
        self.done = True
        self._on_done()
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._start_seconds):
                await self._get_healthy(await self._port)
        except TimeoutError:
            if not self._ended:
                self._on_failed(f"the agent's server did not answer within {self._start_seconds:g} s")
            return
        except asyncio.CancelledError:
            return  # it ended before it could be reached
        sending: asyncio.Task[None] | None = None
        loop, pause = asyncio.get_running_loop(), AGAIN_SECONDS
        try:
            while True:
                begun = loop.time()
                with contextlib.suppress(OSError, BadHttp, TimeoutError):
                    async with self._asked("GET", self._server.events, accept="text/event-stream") as (reader, answer):
                        sending = sending or asyncio.create_task(self._send(), name="agent.requests")
                        await self._read_events(reader, answer)
                if loop.time() - begun >= STEADY_SECONDS:
                    pause = AGAIN_SECONDS
                if not self._ended:
                    await asyncio.sleep(pause)
                if self._ended:
                    return
                log("agent.stream_broken")
                pause = min(2 * pause, MOST_AGAIN_SECONDS)
        except asyncio.CancelledError:
            return
        finally:
            if sending is not None:
                sending.cancel()

    async def _get_healthy(self, port: int) -> None:
        patience = 0.0
        while not self._ended:
            patience = min(patience + PATIENCE_SECONDS, MOST_PATIENCE_SECONDS)
            with contextlib.suppress(OSError, BadHttp, TimeoutError):
                async with asyncio.timeout(patience):
                    status, _ = await self._whole("GET", self._server.health)
                    if status == 200:
                        log("agent.server_ready", port=port)
                        return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _read_events(self, reader: asyncio.StreamReader, answer: AnswerReader) -> None:
        events, told, data = EventSplitter(), 0, b""
        while not answer.over:
            if answer.status not in (0, 200):
                raise BadHttp(f"status {answer.status}")
            if lines := events.feed(answer.feed(data)):
                self._on_events(lines)
            while events.oversized > told:
                told += 1
                self._on_left_out()
            await self._may_read.wait()
            async with asyncio.timeout(SILENCE_SECONDS):
                data = await reader.read(READ_BYTES)
            self._reads += 1
            if not data:
                return

    async def _send(self) -> None:
        """Sends requests in their order; other tasks wait for the answers."""
        while not self._ended:
            wanted = await self._waiting.get()
            self._bodies -= len(wanted.body)
            sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._answer_later(self._ask_one(wanted, sent))
            await sent

    def _answer_later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="agent.request")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _ask_one(self, wanted: Http, sent: asyncio.Future[None]) -> None:
        try:
            status, body = await self._whole(wanted.method, wanted.path, wanted.body, sent)
        except (OSError, BadHttp, ValueError) as error:
            log("agent.request_failed", method=wanted.method, cause=str(error))
            await self._fail(wanted.tag)
        else:
            self._open -= 1
            self._on_answer(wanted.tag, status, body)
        finally:
            if not sent.done():
                sent.set_result(None)

    async def _fail(self, tag: str) -> None:
        await asyncio.sleep(BROKEN_SECONDS)
        self._open -= 1
        self._on_answer(tag, 0, b"")

    async def _whole(
        self, method: str, path: str, body: bytes = b"", sent: asyncio.Future[None] | None = None
    ) -> tuple[int, bytes]:
        """Status and body. Raises OSError, BadHttp or ValueError."""
        kept, size, data = CutText(), 0, b""
        async with self._asked(method, path, body) as (reader, answer):
            if sent is not None:
                sent.set_result(None)
            while True:
                part = answer.feed(data)
                kept.feed(part)
                size += len(part)
                if answer.over:
                    break
                if size > LONGEST:
                    raise BadHttp("it is too long")
                data = await reader.read(READ_BYTES)
                if not data:
                    answer.end()
        whole = kept.finish()
        if whole is None:
            raise BadHttp("it is too long")
        return answer.status, whole

    @contextlib.asynccontextmanager
    async def _asked(
        self, method: str, path: str, body: bytes = b"", *, accept: str = "application/json"
    ) -> AsyncIterator[tuple[asyncio.StreamReader, AnswerReader]]:
        """A connection on which the request was sent."""
        port = self._port.result()
        user, password = self._server.user, self._password
        said = request(method, path, body, port=port, user=user, password=password, accept=accept)
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(said)
            await writer.drain()
            yield reader, AnswerReader()
        finally:
            writer.close()
