"""A core that raises: what it costs."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sandbox.agents.acp import AcpCore
from sandbox.agents.core import EndProcess, Out, ToGateway, UnknownFrame
from sandbox.agents.plain import PlainCore
from sandbox.bridge.agent.guarded_core import CORE_FAILED, MOST_FAILURES, GuardedCore


class _Broken(AcpCore):
    """It fails with each line that says `break`."""

    is_ready = True

    @property
    def ready(self) -> bool:
        return self.is_ready

    def down(self, line: bytes) -> Sequence[Out]:
        raise ValueError("down")

    def up(self, lines: Sequence[bytes]) -> Sequence[Out]:
        if b"break" in b"".join(lines):
            raise ValueError("up")
        return [UnknownFrame(line.decode()) for line in lines]

    logged = up


def guarded(*, all_events: bool = False) -> GuardedCore:
    return GuardedCore(_Broken(), "broken", all_events=all_events)


def frames(outs: Sequence[Out]) -> list[Any]:
    return [json.loads(frame) for out in outs if isinstance(out, ToGateway) for frame in out.frames]


def test_a_line_or_a_logged_line_that_breaks_it_costs_that_line() -> None:
    core = guarded()
    for kind in (core.up, core.logged):
        assert kind([b"one", b"break", b"two"]) == [
            UnknownFrame("one"),
            UnknownFrame("breaks the core"),
            UnknownFrame("two"),
        ]
    plain = GuardedCore(PlainCore(), "plain", all_events=True)
    assert frames(plain.up([b"1", b"2"])) == [1, 2]
    assert plain.logged([b"break"]) == ()
    assert [plain.reads_log, guarded().reads_log] == [False, True]


def test_with_all_events_what_is_not_known_is_passed_on() -> None:
    told = frames(guarded(all_events=True).up([b"break", b"{}"]))
    assert [each["kind"] for each in told] == ["breaks the core", "{}"]


def test_a_message_that_breaks_it_is_answered_and_the_process_ended_unless_it_goes_on() -> None:
    core = guarded()
    message = b'{"type": "message", "seq": 7}'
    error, done = frames(core.down(message))
    assert (error["type"], done["answers"], done["metadata"]) == ("error", [7], {"error": True})
    assert EndProcess(CORE_FAILED) not in core.down(message)
    _Broken.is_ready = False
    assert core.down(message)[-1] == EndProcess(CORE_FAILED)
    _Broken.is_ready = True
    (error,) = frames(core.down(b'{"type": "abort"}'))
    assert error["type"] == "error"


def test_one_that_fails_when_it_is_asked_is_given_up_and_the_log_is_not_filled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken() -> Sequence[Out]:
        raise RuntimeError("x")

    core = guarded()
    for _ in range(2 * MOST_FAILURES):
        assert core.ask("begin", broken) == (EndProcess(CORE_FAILED),)
    assert core.ask("begin", lambda: ()) == ()
    said = capsys.readouterr()
    assert (said.out + said.err).count("agent.core_failed") == MOST_FAILURES
