"""Work that takes minutes, answered as lines of JSON: progress now and then, and the result at the end.

Every line is an object. `{"progress":{...}}` comes when there is news, and often enough that no proxy takes the
connection for dead; `{"result":{...}}` is the last line of work that succeeded. Work that failed ends with a line
`{"error","code"}`, and the connection is closed without HTTP's end marker. A client that goes away ends the work.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request

from gateway.http.access import principal
from gateway.http.responses import SNAPSHOTS_FAIL, UNCACHED, LongResponse, snapshot_refusal
from sync.ports import ObjectsUnavailable

LINES = "application/x-ndjson"
NEWS_SECONDS = 0.2
HEARTBEAT_SECONDS = 9.5
END_SECONDS = 5.0

Told = dict[str, Any]
Tell = Callable[[Told], None]
Work = Callable[[Tell], Awaitable[Told]]


def narrated(request: Request, work: Work, leaving: Callable[[], bool]) -> LongResponse:
    """Run `work`, which is given a function to report progress with, and send its result; end it if the gateway
    leaves."""
    lines = _lines(work, leaving, operator=principal(request).kind != "user")
    return LongResponse(lines, headers={**UNCACHED, "X-Accel-Buffering": "no"}, media_type=LINES)


async def _lines(work: Work, leaving: Callable[[], bool], *, operator: bool) -> AsyncGenerator[bytes, None]:
    newest: Told = {}
    told: Told | None = {}  # None: that, and nothing new since

    def tell(progress: Told) -> None:
        nonlocal newest, told
        newest = told = progress

    async def working() -> Told:
        return await work(tell)

    now = asyncio.get_running_loop().time
    said = -HEARTBEAT_SECONDS
    doing = asyncio.create_task(working(), name="narrated work")
    doing.add_done_callback(_look_at)
    try:
        while not doing.done():
            if told is not None or now() - said >= HEARTBEAT_SECONDS:
                told, said = None, now()
                yield _line({"progress": newest})
            await asyncio.wait({doing}, timeout=NEWS_SECONDS)
            if leaving() and not doing.done():
                raise ObjectsUnavailable("the gateway is shutting down")
        yield _line({"result": doing.result()})
    except SNAPSHOTS_FAIL as error:
        _, code, message = snapshot_refusal(error, operator=operator)
        told_why = {"error": "the gateway restarts: begin again", "code": "draining"} if leaving() else None
        yield _line(told_why or {"error": message, "code": code})
        raise
    finally:
        doing.cancel()
        await asyncio.wait({doing}, timeout=END_SECONDS)


def _line(value: Told) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def _look_at(done: "asyncio.Task[Told]") -> None:
    """Retrieve the error of work that is not awaited any more, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()
