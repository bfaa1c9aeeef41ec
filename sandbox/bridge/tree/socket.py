"""The bridge's end of an operation on the kept tree: one WebSocket each, as sandbox/protocol/tree.py defines.

One operation at a time; a second one waits for the first, except `quiet` and `release`, which are about programs,
because a scan may take many minutes. Blocking work (walking, reading, hashing, writing) happens in one worker thread,
in pieces. A piece is made while the one before is compressed and sent, and no further one, so a scan takes two
batches of memory, and a restore is a few frames ahead of what it has written. An operation ends with its connection,
between two pieces at the latest.

While it works or waits for its turn, the bridge sends a sign of life at least every `heartbeat_seconds`.

The tree that a restore has replaced is removed after its end, a directory at a time and in nobody's turn: other work
for the worker thread goes in between.
"""

import asyncio
import contextlib
import functools
import logging
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, ParamSpec, Protocol, TypeVar

from sandbox.bridge.agent.agent import Agent, AgentRuns
from sandbox.bridge.base.config import Config, Limits
from sandbox.protocol.entry import BadEntry, Entry, Frame
from sandbox.protocol.tree import (
    MAX_NEEDED,
    Batch,
    Chunks,
    Done,
    Need,
    Progress,
    QuietAsk,
    ReleaseAsk,
    Remember,
    RestoreAsk,
    Restored,
    RestoreEnd,
    RestoreEntries,
    RestorePlan,
    ScanAsk,
    Survey,
    SurveyAsk,
    TreeWireError,
    Trouble,
    Up,
    Want,
    decode_down,
    encode,
)
from sandbox.system.child import descendants, start_ticks
from sandbox.system.log import log
from sandbox.system.problem import TreeProblem
from sandbox.tree.root_swap import emptying_trash
from sandbox.tree.scan import TreeScanner
from sandbox.tree.staging import Staging, StagingIncomplete

AHEAD_MESSAGES = 4
PROGRESS_SECONDS = 0.2
KILL_SECONDS = 10.0
TIDY_SECONDS = 600.0

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M")


class SocketGone(Exception):
    """The other end has left."""


class TreeSocket(Protocol):
    """An operation's connection: OperationSocket, or Starlette's WebSocket."""

    async def accept(self) -> None: ...
    async def receive(self) -> Any: ...
    async def send_bytes(self, data: bytes) -> None: ...
    async def close(self) -> None: ...


class Trees:
    """The kept roots of this sandbox. `on_swap` is called when others have taken their place."""

    def __init__(
        self,
        config: Config,
        agent: Agent,
        worker: Executor,
        on_swap: Callable[[], None],
        end_terminals: Callable[[], Awaitable[None]],
    ) -> None:
        """`worker` has one thread."""
        self._end_terminals = end_terminals
        self._config = config
        self._agent = agent
        self._worker = worker
        self._on_swap = on_swap
        self._scanner: TreeScanner | None = None
        self._is_tidy = True
        self._is_outdated = False  # programs would see the roots of before a swap
        self.turn = asyncio.Lock()
        self._in_place = asyncio.Event()  # nobody replaces the roots now
        self._in_place.set()

    # Working

    async def work(self, blocking: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it in the worker thread. Work that has begun goes to its end, even if this is cancelled: the holder of a
        turn keeps it until none of its work runs any more."""
        task = self._worker.submit(blocking, *args, **kwargs)
        job = asyncio.wrap_future(task)
        job.add_done_callback(_look_at)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            if not task.cancel():
                await asyncio.wait({job})
            raise

    def _begin(self, blocking: Callable[[], T]) -> asyncio.Future[T]:
        job = asyncio.get_running_loop().run_in_executor(self._worker, blocking)
        job.add_done_callback(_look_at)
        return job

    async def ahead(self, items: Iterator[T]) -> AsyncGenerator[T, None]:
        """The items of a blocking iterator, each made while the caller uses the one before. To be closed."""
        end = object()
        coming: asyncio.Future[T | object] = self._begin(lambda: next(items, end))
        try:
            while (item := await coming) is not end:
                coming = self._begin(lambda: next(items, end))
                yield item  # type: ignore[misc]  # not `end`
        finally:
            coming.cancel()
            if close := getattr(items, "close", None):
                self._begin(close)

    @contextlib.contextmanager
    def swapping(self) -> Iterator[None]:
        """Within this context the roots change: no agent runs or starts. Afterwards no program starts if it would see
        other roots than these: a mount stays with its directory. Raises AgentRuns."""
        with self._agent.kept_out():
            self._in_place.clear()
            try:
                yield
            finally:
                if not _see_the_same(self._config):
                    self._is_outdated = True
                    self._agent.hold()
                self._in_place.set()
                self._on_swap()

    # Serving

    async def serve(self, socket: TreeSocket) -> None:
        """Serve one connection."""
        await socket.accept()
        talk = _TreeTalk(socket, self._config.limits)
        working = asyncio.create_task(self._serve(talk), name="tree.work")
        tasks = {
            working,
            asyncio.create_task(talk.listen(), name="tree.listen"),
            asyncio.create_task(talk.beat(), name="tree.beat"),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(SocketGone, RuntimeError):  # the client may be gone
            if not working.cancelled():
                working.result()
                await socket.close()
        await self._tidy()

    async def _tidy(self) -> None:
        """Remove what restores have replaced, for at most so long: a program inside may add to it all the time. The
        next restore or the next start removes the rest. So a sandbox that must start anew can still end."""
        if self._is_tidy or self._is_outdated:
            return
        self._is_tidy = True
        steps = self.ahead(emptying_trash(self._config.kept))
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(TIDY_SECONDS), contextlib.aclosing(steps):
                async for _ in steps:
                    pass

    async def _serve(self, talk: "_TreeTalk") -> None:
        try:
            ask = await talk.hear(ScanAsk, RestoreAsk, SurveyAsk, QuietAsk, ReleaseAsk)
            await self._perform(talk, ask)
        except SocketGone:
            raise
        except TreeProblem as exc:
            await self._fail(talk, exc.code, exc.error)
        except AgentRuns as exc:
            await self._fail(talk, "busy", str(exc))
        except (TreeWireError, BadEntry) as exc:
            await self._fail(talk, "failed", f"the bridge was sent {exc}")
        except StagingIncomplete as exc:
            await self._fail(talk, "failed", str(exc))
        except TimeoutError:
            await self._fail(talk, "failed", "the gateway said nothing for a long time")
        except OSError as exc:
            await self._fail(talk, "failed", exc.strerror or type(exc).__name__)
        except Exception as exc:
            logging.getLogger(__name__).exception("tree.crashed")
            await self._fail(talk, "failed", f"the bridge failed: {type(exc).__name__}")

    async def _fail(self, talk: "_TreeTalk", code: str, error: str) -> None:
        log("tree.failed", code=code, error=error)
        await talk.say(Trouble(code, error))

    async def _perform(self, talk: "_TreeTalk", ask: object) -> None:
        match ask:
            case ScanAsk():
                async with self.turn:
                    await self._scan(talk, ask)
            case RestoreAsk():
                async with self.turn:
                    await self._restore(talk, ask)
            case SurveyAsk():
                async with self.turn:
                    await talk.say(await self._survey(ask))
            case QuietAsk():
                self._agent.hold()
                await asyncio.gather(self._agent.end(), self._end_terminals())
                await end_programs(KILL_SECONDS)
                await talk.say(Done())
            case _:  # ReleaseAsk
                await self._in_place.wait()  # an answer means that programs can start
                if self._is_outdated:
                    raise TreeProblem(
                        "failed", "programs here would not see the restored files: start the sandbox again"
                    )
                self._agent.release()
                await talk.say(Done())

    def _scan_with(self) -> TreeScanner:
        """In the worker."""
        if self._scanner is None:
            cache = self._config.state / "tree.cache"
            self._scanner = TreeScanner(self._config.kept, cache, new_inodes=self._config.new_inodes)
        return self._scanner

    async def _survey(self, ask: SurveyAsk) -> Survey:
        known, changed, files = await self.work(lambda: self._scan_with().survey(ask))
        return Survey(self._agent.held, known, changed, files)

    async def _scan(self, talk: "_TreeTalk", ask: ScanAsk) -> None:
        scan = await self.work(lambda: self._scan_with().scan(ask))
        async with contextlib.aclosing(self.ahead(scan.batches())) as batches:
            async for batch in batches:
                await talk.say(batch.message)
                want = await talk.hear(Want)
                _check_wanted(want.offers, batch.message)
                for packing in batch.packing(want.offers):
                    for frame in await asyncio.wrap_future(packing):
                        await talk.say(Chunks(frame))
                await talk.say(Chunks(None, last=True))
        await talk.say(scan.done)
        remember = await talk.hear(Remember)
        await self.work(scan.remember, remember.token)
        await talk.say(Done())

    async def _restore(self, talk: "_TreeTalk", ask: RestoreAsk) -> None:
        with self.swapping():
            entries = await _hear_entries(talk)
            staging = await self.work(Staging, self._config.kept, ask.token)
            try:
                talk.progress = lambda: Progress(staging.files, staging.written_bytes)
                needed = list(await self.work(staging.plan, entries))
                for start in range(0, max(len(needed), 1), MAX_NEEDED):
                    some = tuple(needed[start : start + MAX_NEEDED])
                    await talk.say(Need(some, last=start + MAX_NEEDED >= len(needed)))
                await self._take_frames(talk, staging)
                await self.work(staging.finish)
                self._is_tidy = False
                await self.work(staging.swap, aside=ask.aside, tidy=False)
            finally:
                await self.work(staging.close)
            await self._say_restored(talk, ask.token, entries)

    async def _say_restored(self, talk: "_TreeTalk", token: str, entries: Sequence[Entry]) -> None:
        """Tell the gateway, and meanwhile read what was put there. The gateway leaves when it has the answer; the
        turn lasts until the read is complete, because then programs may begin to change files."""
        adopting = self._begin(lambda: self._adopt(token, entries))
        try:
            await talk.say(Restored())
            await asyncio.wait({adopting})
        finally:
            await asyncio.wait({adopting})

    def _adopt(self, token: str, entries: Sequence[Entry]) -> None:
        """In the worker."""
        try:
            self._scan_with().adopt(token, entries)
        except TreeProblem as exc:  # the tree is there all the same; the next scan reports all of it
            log("tree.not_adopted", code=exc.code, error=exc.error)

    async def _take_frames(self, talk: "_TreeTalk", staging: Staging) -> None:
        """Write frames to the end; the next arrives while one is written."""
        writing: asyncio.Future[None] | None = None
        is_last = False
        while not is_last:
            frames, is_last = await _hear_frames(talk)
            if writing is not None:
                await writing
            writing = self._begin(functools.partial(_put, staging, frames))
        if writing is not None:
            await writing


class _TreeTalk:
    """One conversation. Reads a little ahead: so the end of the connection is noticed while nobody listens, and a
    writing thread need not be woken for every message."""

    def __init__(self, socket: TreeSocket, limits: Limits) -> None:
        self._socket = socket
        self._limits = limits
        self._heard: asyncio.Queue[bytes] = asyncio.Queue(maxsize=AHEAD_MESSAGES)  # full: nothing more is read
        self._said_at = asyncio.get_running_loop().time()
        self.progress: Callable[[], Progress] = lambda: Progress(0, 0)  # any task may ask for it at any time

    async def listen(self) -> None:
        """Read until the connection ends."""
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            await self._heard.put(message.get("bytes") or b"")

    @property
    def has_heard_all(self) -> bool:
        """Whether `hear` would have to wait."""
        return self._heard.empty()

    async def hear(self, *kinds: type[M]) -> M:
        """The next message, which must be of one of these kinds. Raises TreeWireError, and TimeoutError."""
        async with asyncio.timeout(self._limits.tree_silence_seconds):
            message = decode_down(await self._heard.get())
        if not isinstance(message, kinds):
            raise TreeWireError("a message out of place")
        return message

    async def say(self, message: Up) -> None:
        async with asyncio.timeout(self._limits.tree_silence_seconds):
            try:
                await self._socket.send_bytes(encode(message))
            except Exception as exc:  # each kind of socket reports it in its own way
                raise SocketGone(f"{type(exc).__name__}: {exc}") from exc
        self._said_at = asyncio.get_running_loop().time()

    async def beat(self) -> None:
        """Report the progress now and then, or at least a sign of life."""
        told = self.progress()
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            silent = asyncio.get_running_loop().time() - self._said_at
            if told != (now := self.progress()) or silent >= self._limits.heartbeat_seconds:
                told = now
                await self.say(told)


def _see_the_same(config: Config) -> bool:
    """Whether programs see the workspace that is kept. Both roots are replaced together."""
    kept = config.kept / "workspace"
    try:
        return config.workspace == kept or os.path.samefile(config.workspace, kept)
    except OSError:
        return False


async def _hear_entries(talk: _TreeTalk) -> list[Entry]:
    entries: list[Entry] = []
    while isinstance(message := await talk.hear(RestoreEntries, RestorePlan), RestoreEntries):
        entries += message.entries
    return entries


async def _hear_frames(talk: _TreeTalk) -> tuple[list[Frame], bool]:
    """The frames that have come, and whether more will follow."""
    frames: list[Frame] = []
    while isinstance(message := await talk.hear(Chunks, RestoreEnd), Chunks):
        if message.frame is None:
            raise TreeWireError("an empty frame")
        frames.append(message.frame)
        if talk.has_heard_all:
            return frames, False
    return frames, True


def _put(staging: Staging, frames: Sequence[Frame]) -> None:
    try:
        for frame in frames:
            staging.put(frame)
    except BadEntry as exc:
        raise TreeProblem("bad_chunk", str(exc)) from exc


def _check_wanted(wanted: Sequence[int], batch: Batch) -> None:
    if len(set(wanted)) != len(wanted) or not all(0 <= number < len(batch.offers) for number in wanted):
        raise TreeWireError("a request for a chunk that was not offered")


async def end_programs(seconds: float) -> None:
    """Kill every process below this one. Raises TreeProblem if that fails."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    stopped: set[int] = set()
    while alive := {pid for pid in descendants() if start_ticks(pid) is not None}:
        # A stopped process starts nothing new. When no new process has appeared, all are known, and all are killed at
        # once.
        number = signal.SIGKILL if alive <= stopped else signal.SIGSTOP
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        stopped |= alive
        if loop.time() > deadline:
            raise TreeProblem("failed", "programs in the sandbox do not end")
        await asyncio.sleep(0.01 if number is signal.SIGKILL else 0)


def _look_at(job: "asyncio.Future[T]") -> None:
    """A job without a waiter may fail in silence."""
    if not job.cancelled():
        job.exception()
