"""The agent of sessions that have none."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox.absent_agent import answers

ROOT = Path(__file__).parents[2]


def frames(said: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_each_message_is_answered_with_the_words() -> None:
    lines = [b'{"type":"start"}', b'{"type":"message","content":"x","seq":3,"cid":"c"}', b'{"type":"abort"}']
    text, done = frames(b"".join(answers(lines, "no_agent", "install one")))
    assert text["message"]["message"]["content"] == [{"type": "text", "text": "install one"}]
    assert done == {"type": "done", "metadata": {"seq": 3, "cid": "c", "reason": "no_agent"}}


@given(st.lists(st.binary(max_size=30) | st.sampled_from([b'{"type":"message"}', b"[" * 100_000]), max_size=6))
def test_nothing_that_it_reads_ends_it(lines: list[bytes]) -> None:
    wanted = lines.count(b'{"type":"message"}')
    assert len(frames(b"".join(answers(lines, "c", "w\n")))) == 2 * wanted


def test_it_runs_until_it_is_closed() -> None:
    said = b'{"type":"message"}\n{"type":"close"}\n{"type":"message"}\n'
    command = [sys.executable, "-m", "sandbox.absent_agent", "no_agent", "words"]
    done = subprocess.run(command, input=said, capture_output=True, cwd=ROOT, check=True)
    assert [frame["type"] for frame in frames(done.stdout)] == ["sdk_message", "done"]
