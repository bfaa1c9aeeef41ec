"""A client that records everything: its sends, the answers, and the agent's output that it saw.

It sends numbered messages with a few under way at a time, reconnects whenever the connection ends, resends unsettled
ones (oldest first, same `cid`), and resumes at the last `(epoch, offset)` it saw. `accepted` is a promise, and makes
room for the next message; only `stored` or a nack settles one. Contradictions of the protocol go to `violations`;
sends and answers go to the journal, for the checker.
"""

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from tests.campaign.journal import NOWHERE, Journal, digest

COMING_BACK = frozenset({503, 502})


class Participant:
    def __init__(
        self,
        name: str,
        session_id: str,
        messages: int,
        *,
        address: Callable[[], str],
        token: Callable[[], str],
        rng: Random,
        under_way: int = 8,
        pause: float = 0.0,
        journal: Journal = NOWHERE,
    ) -> None:
        self.name = name
        self.session_id = session_id
        self._address, self._token, self._rng = address, token, rng
        self._unsent = [f"{name}-{number}" for number in range(1, messages + 1)]
        self._unsettled: list[str] = []
        self._under_way = under_way
        self._pause = pause  # between two first sends
        self._journal = journal
        self._room = asyncio.Event()
        self.sent: dict[str, int] = {}  # cid -> on how many connections
        self.acked: dict[str, int] = {}
        self.accepted: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.ended: dict[str, set[str]] = {"interrupted": set(), "expired": set()}
        self.connections = 0
        self.closes: list[int | None] = []
        self.goodbyes = 0
        self.recovered: list[bool] = []
        self.violations: list[str] = []
        self.output: dict[str, dict[int, dict[str, Any]]] = {}
        self.epoch = ""
        self.offset = 0
        self._next_record = 0

    @property
    def settled(self) -> int:
        return len(self.acked) + len(self.refused)

    def enough(self) -> None:
        """Send nothing new."""
        self._unsent.clear()

    @property
    def finished(self) -> bool:
        return not self._unsent and not self._unsettled

    @property
    def state(self) -> str:
        """For a message about why it still waits."""
        return (
            f"{self.name}: {self.settled} settled, under way {self._unsettled[:20]}, {len(self._unsent)} to go, "
            f"at {self.epoch}/{self.offset}, {self.connections} connections, closed by {self.closes[-3:]}"
        )

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            try:
                async with self._connect() as socket:
                    self.connections += 1
                    await self._converse(socket)
            except InvalidStatus as refusal:
                if refusal.response.status_code not in COMING_BACK:
                    self.violations.append(f"{self.name}: the upgrade was refused: {refusal}")
            except (OSError, TimeoutError, WebSocketException, EOFError):
                pass
            await asyncio.sleep(self._rng.uniform(0.01, 0.1))

    def _connect(self) -> connect:
        place = {"epoch": self.epoch, "offset": str(self.offset)} if self.epoch else {}
        url = httpx.URL(self._address() + "/ws/v2", params={"sessionId": self.session_id, **place})
        return connect(
            str(url),
            additional_headers={"Authorization": f"Bearer {self._token()}"},
            compression=None,
            max_size=4 << 20,
            open_timeout=5,
            close_timeout=0.2,
            proxy=None,
        )

    async def _converse(self, socket: ClientConnection) -> None:
        sending: asyncio.Task[None] | None = None
        asked = (self.epoch, self.offset) if self.epoch else None
        try:
            async for raw in socket:
                frame = json.loads(raw)
                if sending is None:
                    if frame["type"] == "going_away":
                        self.goodbyes += 1
                        continue
                    self._welcomed_back(frame, asked)
                    sending = asyncio.create_task(self._send(socket), name=f"sender {self.name}")
                else:
                    self._hear(frame)
        except ConnectionClosed:
            pass
        finally:
            self.closes.append(socket.close_code)
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, socket: ClientConnection) -> None:
        again = list(self._unsettled)
        while True:
            if again:
                cid = again.pop(0)
            elif self._unsent and sum(cid not in self.accepted for cid in self._unsettled) < self._under_way:
                await asyncio.sleep(self._pause)
                cid = self._unsent.pop(0) if self._unsent else ""
                self._unsettled += [cid] if cid else []
            else:
                self._room.clear()
                await self._room.wait()
                continue
            if cid in self._unsettled:
                self.sent[cid] = self.sent.get(cid, 0) + 1
                self._note("invoke", cid, sha256=digest(cid))
                await socket.send(json.dumps({"type": "message", "cid": cid, "content": cid}))

    def _welcomed_back(self, frame: dict[str, Any], asked: tuple[str, int] | None) -> None:
        if frame["type"] != "welcome":
            self._wrong(f"the first frame was {frame}")
            return
        here, recovered = (frame["epoch"], frame["offset"]), frame.get("recovered")
        if asked is None and recovered is not None:
            self._wrong(f"recovered without having asked: {frame}")
        if asked is not None:
            if recovered is None or (recovered and here != asked):
                self._wrong(f"asked for {asked}, got {frame}")
            self.recovered.append(bool(recovered))
        self.epoch, self.offset = here
        self._next_record = frame["lastSeq"] + 1

    def _hear(self, frame: dict[str, Any]) -> None:
        if "_offset" in frame:
            self._see(frame.pop("_offset"), frame)
            return
        match frame["type"]:
            case "welcome":
                here = (frame["epoch"], frame["offset"])
                if here[0] == self.epoch and frame.get("recovered") is not False:
                    self._wrong(f"a hole that was not told: {frame} at {self.offset}")
                self.epoch, self.offset = here
            case "record":
                if frame["seq"] != self._next_record:
                    self._wrong(f"record {frame['seq']} came when {self._next_record} was next")
                self._next_record = frame["seq"] + 1
            case "ack" if frame["stage"] == "accepted":
                self._note("accepted", frame["cid"], seq=frame["seq"])
                if frame["cid"] in self.acked:
                    self._wrong(f"accepted after it was stored: {frame}")
                if self.accepted.setdefault(frame["cid"], frame["seq"]) != frame["seq"]:
                    self._wrong(f"two numbers for one message: {frame}, {self.accepted[frame['cid']]}")
                self._room.set()
            case "ack":
                self._note("stored", frame["cid"], seq=frame["seq"])
                self._settle(frame["cid"])
                if self.accepted.get(frame["cid"], frame["seq"]) != frame["seq"]:
                    self._wrong(f"stored elsewhere than accepted: {frame}, {self.accepted[frame['cid']]}")
                if self.acked.setdefault(frame["cid"], frame["seq"]) != frame["seq"]:
                    self._wrong(f"two numbers for one message: {frame}, {self.acked[frame['cid']]}")
            case "nack":
                self._note("nack", frame["cid"], reason=frame["reason"])
                self._settle(frame["cid"])
                self.refused[frame["cid"]] = frame["reason"]
            case "interrupted" | "expired" as kind:
                self._note(kind, frame["cid"])
                self.ended[kind].add(frame["cid"])
            case "going_away":
                self.goodbyes += 1

    def _see(self, offset: int, frame: dict[str, Any]) -> None:
        if offset != self.offset + 1:
            self._wrong(f"frame {offset} of {self.epoch} came after {self.offset}")
        self.offset = offset
        if self.output.setdefault(self.epoch, {}).setdefault(offset, frame) != frame:
            self._wrong(f"frame {offset} of {self.epoch} changed to {frame}")

    def _settle(self, cid: str) -> None:
        if cid in self._unsettled:
            self._unsettled.remove(cid)
            self._room.set()

    def _note(self, event: str, cid: str, **members: object) -> None:
        self._journal.note(event, session=self.session_id, sender=self.name, cid=cid, **members)

    def _wrong(self, what: str) -> None:
        self.violations.append(f"{self.name}#{self.connections}: {what}")
