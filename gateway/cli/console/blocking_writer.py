"""Writing to a descriptor that may block: a terminal, a pipe. The loop goes on meanwhile."""

import asyncio
import os
import queue
import threading

LAST_SECONDS = 1.0


class BlockingWriter:
    """Writes in a thread, in order, one piece at a time; the descriptor's flags are shared with other programs and stay
    as they are. The thread is left behind if the other side never reads again."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wanted: queue.SimpleQueue[tuple[bytes, asyncio.Future[None] | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    async def write(self, data: bytes) -> None:
        """Return when all of it is written. Raises OSError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted.put((data, done))
        await done

    def finish(self, last: bytes = b"") -> None:
        """Write this after everything else, and wait a moment for it."""
        self._wanted.put((last, None))
        self._wanted.put(None)
        self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            data, done = wanted
            failure: OSError | None = None
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError as error:
                failure = error
            if done is not None:
                _settle(done, failure)


def _settle(done: "asyncio.Future[None]", failure: OSError | None) -> None:
    def settle() -> None:
        if not done.cancelled():
            done.set_result(None) if failure is None else done.set_exception(failure)

    try:
        done.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: no task waits
        return
