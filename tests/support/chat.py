"""Reading a chat socket as a test wants to: send, then wait for the frame that matters."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.support.waiting import PATIENCE

Frame = dict[str, Any]


async def say(socket: ClientConnection, type: str, **members: Any) -> None:
    await socket.send(json.dumps({"type": type, **members}))


async def hear(
    socket: ClientConnection,
    wanted: str | Callable[[Frame], bool],
    *,
    within: float = PATIENCE,
    passed: list[Frame] | None = None,
) -> Frame:
    """The next frame of that type, or that `wanted` is true of; those before it go to `passed`."""
    async with asyncio.timeout(within):
        while True:
            frame: Frame = json.loads(await socket.recv())
            if frame["type"] == wanted if isinstance(wanted, str) else wanted(frame):
                return frame
            if passed is not None:
                passed.append(frame)
