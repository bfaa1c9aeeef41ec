"""Conversations in disorder: what real agents said, cut short, twice, in another order, garbled, or mixed with that of
another conversation, while people say whatever they like. No core raises, no message is answered twice, and what goes
out can be read."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import Core, FoldingCore, Http, Out, ToAgent, ToGateway, WakeAfter
from sandbox.agents.json_lines import MAX_FRAME
from tests.support.golden import HEARD, Entry, command, inputs, line_of, put, recordings

RUNS = 40  # of each core
WEIRD: Sequence[Any] = (
    None, True, -1, 1 << 64, 10**300, 1e308, "", "x" * 70_000, "\ud800", [], {}, [[]], [None], {"id": "x"}, "ses_0",
)  # fmt: skip
FRAMES: Sequence[dict[str, Any]] = (
    {"type": "abort"},
    {"type": "set_mode", "mode": "plan"},
    {"type": "set_mode", "mode": [1]},
    {"type": "permission_response", "allow": True, "always": True},
    {"type": "ask_user_answer", "answers": {"a": [1, {}]}},
    {"type": "of_tomorrow"},
    *({"type": "message", "content": content} for content in ("go", None, 7, [{"type": "image"}])),
    *({"type": "message", "content": "now", "metadata": {"steer": True}} for _ in range(3)),
)


class World:
    """One process of an agent, and all who talk with it."""

    def __init__(self, core: Core, random: Random) -> None:
        self.core = core
        self._random = random
        self._seq = 0
        self._queue: list[bytes] = []
        self._given = set[int]()
        self._answered = list[int]()
        self._requests: list[Any] = ["none", 7, None]
        self._wakes = set[str]()

    def take(self, outs: Sequence[Out]) -> None:
        for out in outs:
            match out:
                case ToGateway(frames):
                    for frame in frames:
                        assert len(frame) <= MAX_FRAME
                        self._shown(json.loads(frame))
                case ToAgent(line):
                    assert b"\n" not in line
                    json.loads(line)
                case Http(_, path):
                    assert path.startswith("/")
                    assert path.isascii()
                    assert not set(path) & set(" \r\n")
                case WakeAfter(name):
                    self._wakes.add(name)

    def _shown(self, frame: dict[str, Any]) -> None:
        self._requests += [frame["requestId"]] if "requestId" in frame else []
        if frame["type"] == "done":
            answers = frame.get("answers", [])
            assert set(answers) <= self._given
            self._answered += answers
            assert len(set(self._answered)) == len(self._answered), "answered twice"

    def hear(self, entry: Entry) -> None:
        if entry[0] == "down":
            self.say(dict(entry[1]))
        elif entry[0] not in ("command", "begin", "over"):
            self.take(put(self.core, entry))
        if self._random.random() < 0.1:
            self.say(dict(self._random.choice(FRAMES)))
        if self._wakes and self._random.random() < 0.1:
            self.take(self.core.woken(self._random.choice(sorted(self._wakes))))
        self._deliver()

    def say(self, frame: dict[str, Any]) -> None:
        self._seq += 1
        frame["seq"] = self._seq
        if frame["type"] == "message":
            self._queue.append(json.dumps(frame).encode())
        else:
            self.take(self.core.down(json.dumps({"requestId": self._random.choice(self._requests), **frame}).encode()))

    def _deliver(self) -> None:
        """As the bridge does."""
        while self._queue:
            line = self._queue[0]
            folds = isinstance(self.core, FoldingCore) and self.core.folds(line)
            if self.core.waits(line) and not self.core.ready:
                return
            if folds and isinstance(self.core, FoldingCore) and not self.core.can_fold:
                return
            self._queue.pop(0)
            self._given.add(json.loads(line)["seq"])
            self.take(self.core.down(line))


def disordered(entries: list[Entry], others: list[Entry], random: Random) -> list[Entry]:
    match random.choice(("cut", "garbled", "twice", "shuffled", "swapped", "mixed")):
        case "cut":
            return entries[: random.randrange(len(entries))]
        case "garbled":
            return [_garbled(entry, random) if random.random() < 0.3 else entry for entry in entries]
        case "twice":
            return [entry for entry in entries for _ in range(random.choice((0, 1, 1, 1, 2)))]
        case "shuffled":
            return random.sample(entries, len(entries))
        case "mixed":
            both = sorted([*range(len(entries)), *range(len(others))], key=lambda _: random.random())
            rests = [iter(entries), iter(others)]
            return [entry for _ in both for entry in [next(random.choice(rests), None)] if entry is not None]
    places = sorted(range(len(entries)), key=lambda place: place + random.uniform(0, 4))
    return [entries[place] for place in places]


def _garbled(entry: Entry, random: Random) -> Entry:
    if entry[0] not in HEARD:
        return entry
    line = line_of(entry)
    said = [
        line[: random.randrange(len(line) + 1)].decode(errors="ignore"),
        '{"type":' + "[" * 5000 + "]" * 5000 + "}",
        '{"id":' + "9" * 4000 + "}",
        _with(entry[-1], random.choice(WEIRD), random),
    ]
    status = [random.choice((0, 200, 404, 500))] if entry[0] == "answered" else []
    return [*entry[: -1 - len(status)], *status, random.choice(said)]


def _with(value: Any, weird: Any, random: Random) -> Any:
    """Something in it is something else."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(sorted(value))
        return {**value, name: _with(value[name], weird, random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        place = random.randrange(len(value))
        return [*value[:place], _with(value[place], weird, random), *value[place + 1 :]]
    return weird


@pytest.mark.parametrize("agent", sorted(CORES.keys() - {"plain"}))
def test_no_disorder_breaks_a_core_or_answers_a_message_twice(agent: str) -> None:
    cases = [inputs(entries) for entries in recordings(agent).values()]
    for seed in range(RUNS):
        random = Random(seed)
        world = World(CORES[agent](), random)
        command(
            world.core, ["command", {"notes": random.choice(({}, {"session": "ses_1", "thread": "x"})), "found": []}]
        )
        world.take(world.core.begin(random.choice((None, b"[]", b'{"mode":"all","model":"a/b"}'))))
        for entry in disordered(random.choice(cases), random.choice(cases), random):
            world.hear(entry)
        world.take(world.core.over())
