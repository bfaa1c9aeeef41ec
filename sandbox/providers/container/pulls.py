"""Images fetched by an engine: each by one pull, however many wait for it, and not many at once.

Who waits may leave; a pull ends with the last who does. It is given up when it has made no progress for a while,
however long it takes in all. Full: PULLS_AT_ONCE have their turn and others wait for theirs, in order. One that takes
longer than TURN_SECONDS goes on beside them: registries that send little at a time keep nobody waiting for ever. There
are never more than there are starts. A crash of the gateway ends its pulls, and the engine keeps the layers it has.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.ports.images import read_reference
from sandbox.ports.progress import ImagePull, ImagePulled, OnProgress
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable
from sandbox.providers.container.engine import EngineRefused
from sandbox.providers.container.engine_answers import BadAnswer
from sandbox.providers.container.logins import BadLogins, LoginFile, login_for
from sandbox.providers.container.pull_failure import (
    AUTH_FILE,
    CANCELLED,
    FAILED,
    OK,
    PullFailure,
    pull_failure,
    stalled,
)
from sandbox.providers.container.pull_progress import PullProgress

PULLS_AT_ONCE = 3
TURN_SECONDS = 120.0
PATIENCE_SECONDS = 300.0


class Puller(Protocol):
    """The part of an Engine that a pull needs."""

    def pull(self, image: str, *, login: str = "") -> AsyncGenerator[dict[str, Any], None]: ...


@dataclass(frozen=True, slots=True)
class PullEnd:
    """`result` is one of RESULTS of pull_failure.py; `words` say why, "" if it went well."""

    image: str
    result: str
    seconds: float
    bytes: int
    words: str = ""


class _Pull:
    def __init__(self, image: str) -> None:
        self.progress = PullProgress(image)
        self.told: list[OnProgress] = []  # one for each waiting start
        self.task: asyncio.Task[Exception | None]


class ImagePulls:
    """`on_end` hears of each pull's end."""

    def __init__(
        self,
        engine: Puller,
        *,
        cpu: str = "",
        logins: LoginFile | None = None,
        patience: float = PATIENCE_SECONDS,
        turn_seconds: float = TURN_SECONDS,
        on_end: Callable[[PullEnd], None] = lambda end: None,
    ) -> None:
        self._engine = engine
        self._cpu = cpu
        self._logins = logins
        self._patience = patience
        self._turn_seconds = turn_seconds
        self._on_end = on_end
        self._turns = asyncio.Semaphore(PULLS_AT_ONCE)
        self._under_way: dict[str, _Pull] = {}

    async def pull(self, image: str, told: OnProgress) -> None:
        """Have it fetched. `told` is called with the progress, for the first time at once. Raises SandboxFailed,
        SandboxUnavailable."""
        pull = self._under_way.get(image)
        if pull is None:
            pull = self._under_way[image] = _Pull(image)
            pull.task = asyncio.create_task(self._run(image, pull), name=f"pull {image}")
        pull.told.append(told)
        try:
            told(pull.progress.view)
            failed = await asyncio.shield(pull.task)
        finally:
            pull.told.remove(told)
            if not pull.told and not pull.task.done():
                self._forget(image, pull)
                pull.task.cancel()
        if failed is not None:
            raise type(failed)(str(failed)) from failed
        told(ImagePulled(image))

    async def close(self) -> None:
        """Nobody waits any more."""
        tasks = [pull.task for pull in self._under_way.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self, image: str, pull: _Pull) -> None:
        """A later request begins another pull."""
        if self._under_way.get(image) is pull:
            del self._under_way[image]

    async def _run(self, image: str, pull: _Pull) -> Exception | None:
        """The error of the pull."""
        now = asyncio.get_running_loop().time
        began, failure = now(), PullFailure(CANCELLED, "")
        try:
            async with self._turn():
                began = now()
                failure = await self._fetch(image, pull)
        except SandboxUnavailable as exc:
            failure = PullFailure(FAILED, str(exc))
            return exc
        finally:
            self._forget(image, pull)
            fetched = pull.progress.view.bytes
            self._on_end(PullEnd(image, failure.result, now() - began, fetched, failure.words))
        return None if failure.result == OK else SandboxFailed(failure.words)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the end or until its time is up."""
        await self._turns.acquire()
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self._turns.release()

        timer = asyncio.get_running_loop().call_later(self._turn_seconds, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    async def _fetch(self, image: str, pull: _Pull) -> PullFailure:
        now = asyncio.get_running_loop().time
        with_login = False
        try:
            login = await self._login(image)
            with_login = bool(login)
            async with (
                asyncio.timeout(self._patience) as limit,
                contextlib.aclosing(self._engine.pull(image, login=login)) as messages,
            ):
                async for message in messages:
                    if pull.progress.heard(message):
                        limit.reschedule(now() + self._patience)
                        self._tell(pull)
        except TimeoutError:
            return stalled(image, self._patience)
        except BadLogins as exc:
            return PullFailure(FAILED, f"the image {image} could not be fetched: {AUTH_FILE}: {exc}")
        except BadAnswer as exc:
            return PullFailure(FAILED, f"the image {image} could not be fetched: the container engine is odd: {exc}")
        except EngineRefused as exc:
            return pull_failure(image, exc.reason, status=exc.status, cpu=self._cpu, with_login=with_login)
        return PullFailure(OK, "")

    async def _login(self, image: str) -> str:
        """The value of X-Registry-Auth; "": none. Raises BadLogins."""
        if self._logins is None:
            return ""
        found = login_for(await asyncio.to_thread(self._logins.read), read_reference(image))
        return "" if found is None else found.header

    def _tell(self, pull: _Pull) -> None:
        view: ImagePull = pull.progress.view
        for told in list(pull.told):
            told(view)
