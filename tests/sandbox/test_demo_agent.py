"""The demo agent as a process: lines in, lines out."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.demo_agent import _few_words

ROOT = Path(__file__).parents[2]
ANSWER = ["stream_start", "chunk", "stream_end", "sdk_message", "done"]


class Talk:
    """A conversation with one agent process."""

    def __init__(self, home: Path) -> None:
        self.workspace = home / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sandbox.demo_agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.workspace,
            env={"HOME": str(home), "PYTHONPATH": str(ROOT), "CANARY": "hidden", "PATH": os.environ["PATH"]},
        )

    def send(self, kind: str, **members: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"type": kind, **members}).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        frame = json.loads(self.process.stdout.readline())
        assert isinstance(frame, dict)
        return frame

    def read_until(self, kind: str) -> list[dict[str, Any]]:
        frames = [self.read()]
        while frames[-1]["type"] != kind:
            frames.append(self.read())
        return frames

    def ask(self, content: Any, **members: Any) -> str:
        """Send a message, check the order of the answer's frames, and return its text."""
        self.send("message", content=content, **members)
        return text_of(self.read_until("done"))

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=30)


def text_of(frames: list[dict[str, Any]]) -> str:
    kinds = [frame["type"] for frame in frames]
    assert [kind for n, kind in enumerate(kinds) if kind != "chunk" or kinds[n - 1] != "chunk"] in (
        ANSWER,
        ["stream_start", "stream_end", "sdk_message", "done"],
    )
    text: str = frames[-2]["message"]["message"]["content"][0]["text"]
    assert frames[-2]["message"]["type"] == "assistant"
    assert "".join(frame["text"] for frame in frames if frame["type"] == "chunk") == text
    return text


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    talk = Talk(tmp_path)
    yield talk
    talk.process.kill()
    talk.process.wait()
    for pipe in (talk.process.stdin, talk.process.stdout):
        assert pipe is not None
        pipe.close()


@settings(deadline=None)
@given(st.text())
def test_words_together_are_the_text(text: str) -> None:
    assert "".join(_few_words(text)) == text


@pytest.mark.parametrize(
    "text", ["hello", "", "  a\tb\n\nc  ", "żółw 🐢 \u2028 x", "one two three four five six seven"]
)
def test_it_repeats_exactly_what_it_is_told(talk: Talk, text: str) -> None:
    assert talk.ask(text) == text
    assert talk.ask([{"type": "text", "text": text}, {"type": "image"}, {"type": "text", "text": "!"}]) == text + "!"


def test_done_names_the_message_and_the_count_survives(talk: Talk, tmp_path: Path) -> None:
    talk.send("start", sessionId="s")
    talk.send("message", content="a", seq=7, cid="c1")
    assert talk.read_until("done")[-1]["metadata"] == {"seq": 7, "cid": "c1", "messages": 1}
    assert talk.end() == 0
    woken = Talk(tmp_path)
    woken.send("message", content="b", seq=8)
    assert woken.read_until("done")[-1]["metadata"] == {"seq": 8, "messages": 2}
    woken.end()
    assert woken.process.stdout is not None
    woken.process.stdout.close()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"allow": True}, "Allowed: delete it"),
        ({"allow": False}, "Denied: delete it"),
        ({"behavior": "allow"}, "Allowed: delete it"),
        ({"behavior": "deny"}, "Denied: delete it"),
        ({}, "Denied: delete it"),
    ],
)
def test_a_permission_is_asked_and_its_answer_told(talk: Talk, answer: dict[str, Any], outcome: str) -> None:
    talk.send("message", content="/permission delete it", seq=1)
    request = talk.read()
    assert (request["type"], request["toolInput"]) == ("tool_permission_request", {"what": "delete it"})
    assert request["toolName"]
    talk.send("message", content="meanwhile", seq=2)
    talk.send("permission_response", requestId="another", allow=True)
    talk.send("permission_response", requestId=request["requestId"], **answer)
    frames = talk.read_until("done")
    assert (text_of(frames), frames[-1]["metadata"]["seq"]) == (outcome, 1)
    assert text_of(talk.read_until("done")) == "meanwhile"
    assert talk.read()["code"] == "unknown_request"


def test_a_question_is_asked_and_its_answer_told(talk: Talk) -> None:
    talk.send("message", content="/ask How many?")
    request = talk.read()
    assert request["type"] == "ask_user_question"
    question = request["questions"][0]
    assert (question["question"], question["multiSelect"]) == ("How many?", False)
    assert {"label", "description"} == set(question["options"][0])
    assert question["header"]
    talk.send("ask_user_answer", requestId=request["requestId"], answers={"How many?": "blue"})
    assert text_of(talk.read_until("done")) == 'You answered: {"How many?": "blue"}'


def test_what_was_open_is_asked_again_after_a_restart(talk: Talk) -> None:
    permission = {"requestId": "p1", "toolName": "demo", "toolInput": {"what": "jump"}}
    question = {"requestId": "q1", "questions": [{"question": "?"}], "type": "ask_user_question"}
    talk.send("start", resume=True, pending=[permission, question, "junk", {"no": "id"}])
    assert talk.read() == {"type": "tool_permission_request", **permission}
    assert talk.read() == question
    assert talk.ask("still here") == "still here"
    talk.send("permission_response", requestId="p1", allow=True)
    assert text_of(talk.read_until("done")) == "Allowed: jump"
    talk.send("ask_user_answer", requestId="q1", answer="no")
    assert text_of(talk.read_until("done")) == "You answered: no"


def test_an_abort_ends_a_long_answer(talk: Talk) -> None:
    talk.send("message", content="/long 600", seq=3)
    talk.read_until("chunk")
    talk.send("message", content="next")
    talk.send("abort")
    frames = talk.read_until("done")
    assert [frame["type"] for frame in frames[-2:]] == ["stream_end", "done"]
    assert (frames[-1]["metadata"]["aborted"], frames[-1]["metadata"]["seq"]) == (True, 3)
    assert "sdk_message" not in [frame["type"] for frame in frames]
    assert text_of(talk.read_until("done")) == "next"
    talk.send("abort")  # nothing runs: nothing happens
    assert talk.ask("fine") == "fine"


def test_an_abort_withdraws_what_it_asked(talk: Talk) -> None:
    talk.send("message", content="/permission write", seq=1)
    asked = talk.read_until("tool_permission_request")[-1]
    talk.send("abort")
    *_, gone, done = talk.read_until("done")
    assert (gone["type"], gone["requestId"]) == ("request_gone", asked["requestId"])
    assert done["metadata"]["aborted"] is True


def test_sigint_is_as_good_as_an_abort(talk: Talk) -> None:
    talk.send("message", content="/permission")
    talk.read()
    talk.process.send_signal(signal.SIGINT)
    assert [frame["type"] for frame in talk.read_until("done")] == ["request_gone", "done"]
    assert talk.ask("fine") == "fine"


def test_a_long_answer_ends_by_itself(talk: Talk) -> None:
    assert talk.ask("/long 0.3") == "tick 1 tick 2 tick 3 "


def test_many_lines(talk: Talk) -> None:
    talk.send("message", content="/lines 500")
    frames = talk.read_until("done")
    assert len(frames) == 504
    assert text_of(frames).splitlines()[-1] == "line 500"


def test_files_stay_beneath_the_workspace(talk: Talk, tmp_path: Path) -> None:
    assert talk.ask("/write notes/a.txt some text") == "Wrote 9 bytes to notes/a.txt."
    assert (talk.workspace / "notes/a.txt").read_text() == "some text"
    assert talk.ask("/read notes/a.txt") == "some text"
    (talk.workspace / "out").symlink_to(tmp_path)
    for name in ("../evil", "/etc/evil", "out/evil", "", ".", "a/../../evil"):
        assert "beneath" in talk.ask(f"/write {name} x")
        assert "beneath" in talk.ask(f"/read {name}")
    assert not (tmp_path / "evil").exists()
    assert "could not read" in talk.ask("/read nothing")
    assert "could not write" in talk.ask("/write notes x")


def test_a_variable_is_never_shown(talk: Talk) -> None:
    assert talk.ask("/env CANARY") == "CANARY is set"
    assert talk.ask("/env NOTHING") == "NOTHING is not set"


def test_help_names_every_request(talk: Talk) -> None:
    text = talk.ask("/help")
    for name in ["/permission", "/ask", "/write", "/read", "/long", "/lines", "/env", "/crash", "/exit", ".demo-agent"]:
        assert name in text


def test_a_crash_leaves_an_unfinished_answer(talk: Talk) -> None:
    talk.send("message", content="/crash")
    assert [talk.read()["type"], talk.read()["type"]] == ["stream_start", "chunk"]
    assert talk.process.wait(timeout=30) == 3


@pytest.mark.parametrize("kind", ["close", "exit"])
def test_it_ends_when_told(talk: Talk, kind: str) -> None:
    if kind == "close":
        talk.send("message", content="/long 600")
        talk.send("close")
    else:
        assert talk.ask("/exit") == "bye"
    assert talk.process.wait(timeout=30) == 0


def test_what_came_before_the_end_of_input_is_answered(talk: Talk) -> None:
    for n in range(50):
        talk.send("message", content=f"message number {n} of these", seq=n)
    assert talk.end() == 0
    assert [talk.read_until("done")[-1]["metadata"]["seq"] for _ in range(50)] == list(range(50))


def test_nonsense_is_answered_and_survived(talk: Talk) -> None:
    assert talk.process.stdin is not None
    talk.process.stdin.write(b"junk\n[]\n" + b"[" * 100_000 + b'\n{"type":"what"}\n\xff\n')
    talk.process.stdin.flush()
    codes = [talk.read()["code"] for _ in range(5)]
    assert codes == ["bad_frame", "bad_frame", "bad_frame", "unknown_type", "bad_frame"]
    assert talk.ask({"content": "odd"}) == ""
