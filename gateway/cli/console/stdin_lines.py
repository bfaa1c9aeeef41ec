"""The input of a script, line by line."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator


async def input_lines(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Lines without their line feeds, read one at a time in a thread that may be left waiting when the process ends."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)

    def put(line: bytes | None) -> None:
        asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

    def pump() -> None:
        kept = b""
        while chunk := os.read(descriptor, 65536):
            *whole, kept = (kept + chunk).split(b"\n")
            for line in whole:
                put(line)
        if kept:
            put(kept)
        put(None)

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line
