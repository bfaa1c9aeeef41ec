"""Recorded conversations with real agents: what a core makes of them, of parts of them, and of damaged ones."""

import json
from collections.abc import Sequence

import pytest

from sandbox.agents.catalogue import CORES
from tests.support.golden import GOLDEN, HEARD, PACKAGES, Entry, command, inputs, line_of, put, recordings, replay

CASES = {
    f"{agent.name}-{case}": (agent.name, entries)
    for agent in sorted(GOLDEN.iterdir())
    for case, entries in recordings(agent.name).items()
}
every_recording = pytest.mark.parametrize(
    ("agent", "entries"), [pytest.param(*case, id=name) for name, case in CASES.items()]
)
GARBAGE = (
    "", "{", "no JSON", "[1]", "null", '"text"', "{}", '{"type":1}', '{"type":[]}', '{"method":{}}', '{"id":{}}',
    '{"type":"session.idle"}', '{"type":"message.updated","properties":1}', '{"id":"ses_0","directory":[]}',
    '{"type":"result"}', '{"type":"assistant","message":1}', '{"type":"control_request","request":[]}',
)  # fmt: skip


def test_every_core_but_plain_has_recordings() -> None:
    assert {agent for agent, _ in CASES.values()} == CORES.keys() - {"plain"}


def test_recordings_do_not_say_where_they_were_made() -> None:
    said = {place for path in GOLDEN.rglob("*.jsonl") for place in PACKAGES.findall(path.read_text())}
    assert said <= {"/packages"}


@every_recording
def test_a_conversation_becomes_exactly_these_frames(agent: str, entries: list[Entry]) -> None:
    assert replay(agent, entries) == entries


@every_recording
def test_no_beginning_of_a_line_does_harm(agent: str, entries: list[Entry]) -> None:
    """Cut at places all over each line; then the conversation goes on to its end."""

    def change(entry: Entry, cut: int) -> Entry:
        line = line_of(entry)
        return [*entry[:-1], line[: len(line) * cut // 8].decode(errors="ignore")]

    for cut in range(8):
        replay(agent, entries, lambda entry, cut=cut: change(entry, cut))  # type: ignore[misc]


@every_recording
def test_any_line_may_be_garbage_and_the_rest_is_read(agent: str, entries: list[Entry]) -> None:
    places = [place for place, entry in enumerate(inputs(entries)) if entry[0] in HEARD]
    for number, place in enumerate(places):
        changed = inputs(entries)
        changed[place] = [*changed[place][:-1], GARBAGE[number % len(GARBAGE)]]
        replay(agent, changed)
    for garbage in GARBAGE:
        replay(agent, entries, lambda entry, garbage=garbage: [*entry[:-1], garbage])  # type: ignore[misc]


@every_recording
def test_each_part_of_a_line_may_be_of_any_type(agent: str, entries: list[Entry]) -> None:
    wrongs: Sequence[object] = (None, 7, "text", [], ["text"], [{}], {}, {"text": 1})
    for wrong in wrongs:
        replay(agent, entries, lambda entry, wrong=wrong: [*entry[:-1], _wrong(entry[-1], wrong)])  # type: ignore[misc]


def _wrong(value: object, wrong: object, depth: int = 0) -> object:
    """The object with everything below its first levels replaced, but for what says of which kind it is."""
    if not isinstance(value, dict) or depth == 2:
        return wrong
    kinds = ("type", "subtype", "method")
    return {name: each if name in kinds else _wrong(each, wrong, depth + 1) for name, each in value.items()}


@every_recording
def test_what_goes_out_is_hardly_more_than_what_the_agent_said(agent: str, entries: list[Entry]) -> None:
    said, frames = _answer_bytes(agent, inputs(entries))
    assert frames < 1.5 * said + (64 << 10)


def _answer_bytes(agent: str, entries: Sequence[Entry]) -> tuple[int, int]:
    """How much the agent wrote, and how much goes to the gateway."""
    made = replay(agent, entries)
    said = sum(len(line_of(entry)) for entry in made if entry[0] in HEARD)
    return said, sum(len(json.dumps(entry[1])) for entry in made if entry[0] == "> frame")


@every_recording
def test_lines_that_come_together_mean_the_same(agent: str, entries: list[Entry]) -> None:
    apart, together = CORES[agent](), CORES[agent]()
    waiting: list[bytes] = []
    for entry in inputs(entries):
        if entry[0] == "up":
            waiting.append(line_of(entry))
            put(apart, entry)
            continue
        together.up(waiting)
        waiting = []
        assert together == apart
        if entry[0] == "command":
            apart, together = CORES[agent](), CORES[agent]()
            command(apart, entry)
            command(together, entry)
        else:
            put(apart, entry)
            put(together, entry)
