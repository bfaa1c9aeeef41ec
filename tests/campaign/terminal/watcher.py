"""A viewer of the flood: checks every byte as it comes, and resumes after a cut."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.campaign.terminal.flood import stream

AGAIN_SECONDS = 0.03
FOLLOWED_BYTES = 16 * 1024  # behind a picture: this output must fit it
MAX_PROBLEMS = 5
NARROW_BYTES = 64 * 1024

Address = Callable[..., str]


@dataclass
class Glimpse:
    """A picture of the screen at `offset`, and the output behind it."""

    offset: int
    picture: bytes
    followed: bytearray = field(default_factory=bytearray)


class Watcher:
    """`pace` is the time for each frame. `address` is called at each connection, with its position. A `narrow` one
    has no room for unread data."""

    def __init__(self, name: str, address: Address, pace: float = 0.0, *, narrow: bool = False) -> None:
        self.name = name
        self.pace = pace
        self.epoch: str | None = None
        self.offset = 0
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.glimpses: list[Glimpse] = []
        self.codes: Counter[int | None] = Counter()
        self._address = address
        self._narrow = narrow
        self._awaited: dict[str, Any] | None = None  # the reset whose picture has not come
        self._thawed = asyncio.Event()
        self._thawed.set()

    def freeze(self) -> None:
        """Take nothing more from the connection."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def run(self) -> None:
        """Look on until cancelled."""
        while True:
            try:
                await self._look_on()
            except (OSError, TimeoutError, InvalidHandshake):
                self.counts["refused"] += 1
            await asyncio.sleep(AGAIN_SECONDS)

    async def _look_on(self) -> None:
        position = {} if self.epoch is None else {"epoch": self.epoch, "offset": self.offset}
        address = self._address(**position)
        options: dict[str, Any] = {"sock": _narrow_socket(address)} if self._narrow else {}
        async with connect(
            address, compression=None, proxy=None, ping_interval=None, max_size=4 << 20, max_queue=4, **options
        ) as connection:
            try:
                while True:
                    await self._thawed.wait()
                    message = await connection.recv()
                    if isinstance(message, str):
                        self._hear(json.loads(message), **position)
                    else:
                        self._take(message)
                    if self.pace:
                        await asyncio.sleep(self.pace)
            except ConnectionClosed:
                self.codes[connection.close_code] += 1
        if self._awaited is not None:  # its screen is void
            self._awaited = self.epoch = None

    def _hear(self, message: dict[str, Any], **asked: object) -> None:
        match message["type"]:
            case "ready" if message["epoch"]:
                self.counts["greeted"] += 1
                if asked and (message["epoch"], message["offset"]) == (asked["epoch"], asked["offset"]):
                    self.counts["resumed"] += 1
                elif asked:
                    self.counts["gaps"] += 1
                    self.epoch = None  # until the reset has come, which must
                else:
                    self.epoch, self.offset = message["epoch"], message["offset"]
            case "reset":
                self.counts["resets"] += 1
                self._awaited = message
            case "error" | "exit":
                self._accuse(f"was told {message}")

    def _take(self, payload: bytes) -> None:
        if self._awaited is not None:
            reset, self._awaited = self._awaited, None
            if self.epoch == reset["epoch"] and reset["offset"] < self.offset:
                self._accuse(f"was set back from {self.offset} to {reset['offset']}")
            self.epoch, self.offset = reset["epoch"], reset["offset"]
            self.glimpses.append(Glimpse(self.offset, payload))
            return
        if self.epoch is None:
            self._accuse("was given bytes behind a gap, without a reset")
        if payload != stream(self.offset, self.offset + len(payload)):
            self._accuse(f"was given other bytes at {self.offset}: {payload[:100]!r}")
        self.offset += len(payload)
        self.counts["bytes"] += len(payload)
        if self.glimpses and len(self.glimpses[-1].followed) < FOLLOWED_BYTES:
            self.glimpses[-1].followed += payload

    def _accuse(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{self.name} {problem}")


def _narrow_socket(address: str) -> socket.socket:
    """A connection with little room in the kernel."""
    where = urlsplit(address)
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
        made.connect((where.hostname, where.port))
    except OSError:
        made.close()
        raise
    return made
