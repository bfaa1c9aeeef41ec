"""People of the simulation: each checks, frame by frame, that the page gets what was promised."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from gateway.protocol.chat_frames import OWN_TYPES
from persistence.errors import StoreUnavailable
from sandbox.protocol.values import Position
from tests.support.sessions import Tab, World
from tests.support.simulated_agents import Truth

UNDECIDED = ("storage_unavailable", "storage_full", "owner_moved")
POISON = "poison"  # the store never takes a record that ends so


@dataclass
class Sent:
    cid: str
    text: str
    times: int = 0
    seq: int | None = None
    stored: bool = False
    refused: str | None = None

    @property
    def decided(self) -> bool:
        return self.stored or self.refused is not None


class Person:
    """Sends in order, resends unanswered messages when it comes back, resumes where it was, grants everything."""

    def __init__(self, world: World, session_id: str, name: str, truth: Truth) -> None:
        self.session_id = session_id
        self.name = name
        self.tab: Tab | None = None
        self.sent: dict[str, Sent] = {}
        self.granted: dict[str, str] = {}  # cid -> request id
        self.settled_grants: Counter[str] = Counter()
        self._tabs: list[Tab] = []
        self._undecided: set[str] = set()
        self.place: Position | None = None
        self.told: dict[str, str] = {}  # cid -> expired or interrupted
        self.reached: Counter[str] = Counter()
        self._world = world
        self._truth = truth
        self._asked: Position | None = None
        self._welcomes = 0
        self._shown = False  # whether it saw a frame of the present process

    @property
    def watching(self) -> bool:
        return self.tab is not None and not self.tab.outlet.closed

    async def connect(self, *, resume: bool = True) -> None:
        self.leave()
        self._asked = self.place if resume else None
        try:
            actor = await self._world.registry.find(self.session_id, user_id=None)
        except StoreUnavailable:
            return
        if actor is None:
            return
        self._welcomes = 0
        self.tab = tab = Tab(actor)
        tab.outlet.on_frame = self._on_frame
        actor.post(actor.viewers.attach, tab.viewer, self._asked)
        self.ask_again()

    def ask_again(self) -> None:
        """Read everything, and repeat undecided messages."""
        assert self.tab is not None
        self.tab.outlet.full = False
        for sent in self.sent.values():
            if not sent.decided:
                self._say(sent)
        for cid, request in self.granted.items():
            self.tab.send("permission_response", cid=cid, requestId=request, allow=True)

    def leave(self) -> None:
        if self.tab is not None:
            tab, self.tab = self.tab, None
            self._tabs.append(tab)
            tab.leave()

    def say(self, text: str) -> None:
        sent = Sent(f"{self.name}-{len(self.sent)}", text)
        self.sent[sent.cid] = sent
        self._say(sent)

    def repeat(self, sent: Sent) -> None:
        if sent.refused is None:
            self._say(sent)

    def _say(self, sent: Sent) -> None:
        if self.watching and self.tab is not None:
            sent.times += 1
            self.tab.say(sent.text, sent.cid)

    @property
    def lost_nacks(self) -> set[str]:
        """Refusals that nobody heard, or that were not final: later messages may be stored before them."""
        unsent = (json.loads(text) for tab in self._tabs for text in tab.outlet.unsent)
        return self._undecided | {frame["cid"] for frame in unsent if frame["type"] == "nack"}

    def _on_frame(self, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        if "_offset" in frame:
            self._on_output(frame)
        if kind == "welcome":
            self._on_welcome(frame)
        elif kind == "ack":
            self._on_ack(frame)
        elif kind == "nack":
            self._on_nack(frame)
        elif kind in ("expired", "interrupted") and "requestId" not in frame:
            word = "cancelled" if frame.get("reason") == "cancelled" else kind
            assert self.told.setdefault(frame["cid"], word) == word, f"{frame} after {self.told[frame['cid']]}"
        elif kind == "tool_permission_request":
            self._grant(frame["requestId"])

    def _on_welcome(self, frame: dict[str, Any]) -> None:
        self._welcomes += 1
        place = Position(frame["epoch"], frame["offset"])
        recovered = frame.get("recovered")
        self.reached[f"recovered:{recovered}"] += 1
        if self._welcomes == 1:
            assert (recovered is None) == (self._asked is None), f"asked for {self._asked}, got {frame}"
            assert recovered is not True or place == self._asked, f"asked for {self._asked}, got {frame}"
        elif recovered is None:
            assert self.place is not None
            assert place.epoch != self.place.epoch, "the same process again, and nothing was lost: why say so"
            assert place.offset == 0, "a new process begins at its first frame"
            before = self._truth.written.get(self.place.epoch, [])[self.place.offset :]
            unseen = [line for line in before if json.loads(line)["type"] not in OWN_TYPES]
            assert not self._shown or not unseen, f"{self.name} was not told that it missed {unseen}"
            self.reached["new epoch"] += 1
        self.place, self._shown = place, False
        for record in frame.get("open", []):
            self._grant(record["content"]["requestId"])

    def _on_output(self, frame: dict[str, Any]) -> None:
        assert self.place is not None
        written = self._truth.written[self.place.epoch]
        offset = self.place.offset + 1
        while json.loads(written[offset - 1])["type"] in OWN_TYPES:
            offset += 1
        assert frame["_offset"] == offset, f"{self.name} at {self.place} got {frame}"
        shown = {name: value for name, value in frame.items() if name not in ("_offset", "messageId", "seq")}
        assert shown == json.loads(written[offset - 1])
        self.place, self._shown = Position(self.place.epoch, offset), True

    def _on_ack(self, frame: dict[str, Any]) -> None:
        sent = self.sent.get(frame["cid"])
        if sent is None:
            self.settled_grants[self.granted.pop(frame["cid"], "again")] += 1
            return
        self.reached[f"ack {frame['stage']}"] += 1
        if sent.text.endswith(POISON):
            assert frame["stage"] == "accepted", f"{frame}: the store will never take it"
        assert sent.text.endswith(POISON) or sent.seq in (None, frame["seq"]), f"{frame}, before that seq {sent.seq}"
        assert frame["stage"] == "stored" or not sent.stored, f"{frame}, and it was stored"
        sent.seq, sent.stored = frame["seq"], frame["stage"] == "stored"

    def _on_nack(self, frame: dict[str, Any]) -> None:
        self.reached[frame["reason"]] += 1
        sent = self.sent.get(frame["cid"])
        if sent is None:
            assert frame["reason"] in ("already_answered", "unknown_request", *UNDECIDED), frame
            if frame["reason"] not in UNDECIDED:
                self.granted.pop(frame["cid"], None)
            return
        if frame["reason"] == "owner_moved" or (frame["reason"] in UNDECIDED and sent.times > 1):
            self._undecided.add(sent.cid)
            return
        poisoned = sent.text.endswith(POISON)  # once it was rejected, its cid is a new one's
        assert poisoned or frame["reason"] != "rejected", f"{frame} for {sent}"
        assert sent.seq is None or (poisoned and not sent.stored), f"{frame} after {sent}"
        sent.seq, sent.refused = None, frame["reason"]

    def _grant(self, request: str) -> None:
        cid = f"{self.name}-grant-{request}"
        self.granted[cid] = request
        if self.tab is not None:
            self.tab.send("permission_response", cid=cid, requestId=request, allow=True)
