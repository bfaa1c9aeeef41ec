"""The rules of a client as data: the cases of `tests/vectors/`, run against the Python client.
`web/client/test/vectors.test.ts` runs the TypeScript client against the same files."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs

from gateway.agents.status import told
from gateway.agents.transcript import Transcript
from gateway.cli.client.chat import FrameHeard
from gateway.cli.client.conversation import ClientConversation
from gateway.cli.client.terminal_view import (
    Event,
    Expiring,
    Greeted,
    Output,
    Painted,
    TerminalView,
    Told,
    UnreadableGateway,
)
from gateway.cli.commands.chat_view import ChatView, StreamedText
from gateway.cli.commands.chat_work import steps_of
from gateway.protocol.nacks import NACKS, SendAgain
from gateway.protocol.reconnect import Comeback, NextAttempt
from sandbox.protocol.terminal import Exit, Resized, Size, TerminalTrouble

VECTORS = Path(__file__).parents[1] / "vectors"
SHARE = 0.5
Case = dict[str, Any]


class Half(Random):
    def random(self) -> float:
        return SHARE


def cases(name: str, folder: Path = VECTORS) -> list[Case]:
    found: list[Case] = json.loads((folder / name).read_text())
    assert found, f"{name} has no cases"
    return found


def check(name: str, folder: Path = VECTORS) -> None:
    """Run all cases of a file. Raises AssertionError, which names the case."""
    for case in cases(name, folder):
        try:
            RUNNERS[name](case)
        except AssertionError as error:
            raise AssertionError(f"{name}: {case.get('name', case)}: {error}") from error


# when to come back


def _then(coming: NextAttempt) -> str | int:
    return "end" if coming.seconds is None else "at once" if coming.seconds == 0 else round(coming.seconds * 1000)


def _attempt(comeback: Comeback, step: Case, now: float) -> NextAttempt:
    if "status" in step:
        after = step.get("retryAfter")
        return comeback.refused(step["status"], b"", str(after // 1000) if after else None)
    return comeback.closed(None if step["code"] == 1006 else step["code"], "", now)


def close_code(case: Case) -> None:
    comeback = Comeback(Half())
    if "code" in case:
        comeback.greeted(0)
    assert _then(_attempt(comeback, case, 1.0)) == case["then"]


def connection(case: Case) -> None:
    comeback = Comeback(Half())
    for step in case["steps"]:
        now = step["at"] / 1000
        match step:
            case {"greeted": True}:
                comeback.greeted(now)
            case {"goingAway": milliseconds}:
                comeback.going_away(milliseconds / 1000)
            case {"closed": code, "then": then}:
                assert _then(_attempt(comeback, {"code": code}, now)) == then, step
            case {"refused": status, "then": then}:
                assert _then(_attempt(comeback, {"status": status}, now)) == then, step
            case {"opens": True}:
                pass
            case _:
                raise AssertionError(f"an unknown step {step}")


# sending and resending

WELCOME = {"type": "welcome", "epoch": "e", "offset": 0}


def nack(case: Case) -> None:
    talk = ClientConversation()
    talk.offer({"type": "message", "content": "x"}, "c")
    talk.connected()
    assert _sent(talk, 0) == ["c"]
    talk.heard({"type": "nack", "cid": "c", "reason": case["reason"]}, 0, SHARE)
    assert _sent(talk, 0) == []
    found = "paused" if _sent(talk, 60) else ""
    talk.connected()
    found = found or ("connected" if _sent(talk, 60) else "never")
    assert found == {"decided": "never"}.get(case["again"], case["again"])
    known = NACKS[case["reason"]].again if case["reason"] in NACKS else SendAgain.NEVER
    assert known is SendAgain[case["again"].upper()]


def _sent(talk: ClientConversation, now: float) -> list[str]:
    found = []
    while (frame := talk.next(now)) is not None:
        found.append(frame["cid"])
    return found


def chat(case: Case) -> None:
    talk, now = ClientConversation(), 0.0
    for step in case["steps"]:
        match step:
            case {"offer": frame, "cid": cid}:
                content = {"content": frame["content"] * step["times"]} if "times" in step else {}
                assert talk.offer({**frame, **content}, cid) == step.get("refused"), step
            case {"connect": welcome}:
                assert talk.heard(welcome, now, SHARE)
                talk.connected()
            case {"at": milliseconds}:
                now = milliseconds / 1000
            case {"sends": frames}:
                assert list(_frames(talk, now)) == frames, step
            case {"hear": frame}:
                assert talk.heard(frame, now, SHARE) is step.get("shown", True), step
                assert step.get("goesOn") in (None, talk.owes(frame.get("cid", ""))), step
            case {"position": position}:
                assert talk.position() == position, step
            case {"tooLong": cid}:
                assert talk.too_long() == cid, step
            case _:
                raise AssertionError(f"an unknown step {step}")
        fates = [{"cid": fate.cid, "to": fate.to, "seq": fate.seq, "code": fate.code or None} for fate in talk.take()]
        told = [{name: value for name, value in fate.items() if value is not None} for fate in fates]
        assert told == step.get("fates", []), step


def _frames(talk: ClientConversation, now: float) -> Iterator[dict[str, Any]]:
    while (frame := talk.next(now)) is not None:
        yield frame


# terminals


def terminal(case: Case) -> None:
    view = TerminalView("main", case["role"], Size(*case["size"]) if case["size"] else None)
    for step in case["steps"]:
        match step:
            case {"connect": query}:
                asked = {name: values[0] for name, values in parse_qs(view.connecting()).items()}
                wanted = {"role": "drive"} | {name: str(value) for name, value in query.items()}
                assert asked == wanted, step
            case {"hear": frame, "events": events}:
                assert _heard(view, json.dumps(frame)) == events, step
            case {"bytes": text, "events": events}:
                assert _heard(view, text.encode()) == events, step
            case {"type": text, "live": live, "taken": taken}:
                assert view.type(text.encode() * step.get("times", 1), live=live) is taken, step
            case {"resize": [cols, rows]}:
                view.resize(Size(cols, rows))
            case {"sends": frames}:
                assert _said(view) == frames, step
            case {"position": position}:
                at = view.position
                assert (at and {"epoch": at.epoch, "offset": str(at.offset)}) == position, step
            case _:
                raise AssertionError(f"an unknown step {step}")


def _said(view: TerminalView) -> list[Any]:
    control, typed = [], b""
    while (frame := view.next_frame()) is not None:
        if isinstance(frame, str):
            control.append(json.loads(frame))
        else:
            typed += frame
    return [*control, *([typed.decode()] if typed else [])]


def _heard(view: TerminalView, frame: str | bytes) -> list[Case]:
    try:
        event = view.hear(frame)
    except UnreadableGateway:
        return [{"event": "bad"}]
    return [] if event is None else [_shown(event)]


def _shown(event: Event) -> Case:
    match event:
        case Greeted(size, goes_on, absent):
            return {"event": "ready", "goesOn": goes_on, "absent": absent, "cols": size.cols, "rows": size.rows}
        case Output(old, new):
            return {"event": "data", "old": old.decode(), "new": new.decode()}
        case Painted(picture, size):
            return {"event": "reset", "data": picture.decode(), "cols": size.cols, "rows": size.rows}
        case Exit(code, signal):
            return {"event": "exit", "code": code, "signal": signal}
        case Resized(cols, rows):
            return {"event": "resize", "cols": cols, "rows": rows}
        case Told(status):
            return {"event": "status", "status": status}
        case TerminalTrouble(code, error):
            return {"event": "error", "code": code, "error": error}
        case Expiring():
            return {"event": "expiring"}


# agents


def agent(case: Case) -> None:
    """The gateway's transcript makes the record of the answer; the chat shows its words as they come."""
    transcript, view = Transcript(), ChatView()
    known: Mapping[str, str] = {}
    steps: list[list[str]] = []
    said = ""
    for frame in case["frames"]:
        transcript.feed(frame, json.dumps(frame).encode())
        shown = view.show(FrameHeard(frame["type"], frame))
        said += "".join(each.text for each in shown if isinstance(each, StreamedText))
        if frame["type"] in ("plan", "todo"):
            steps = [[text, state] for text, state in steps_of(frame)]
        if frame["type"] == "agent_status":
            known = told(known, frame)
    answer = json.loads(transcript.finish({}))
    assert answer["content"] == case["text"], case
    assert answer["metadata"].get("blocks", []) == case.get("blocks", []), case
    assert steps == case.get("steps", []), case
    assert known == case.get("agent", {}), case
    words: str = case["shown"] if "shown" in case else case["text"]
    assert "".join(said.split()) == "".join(words.split()), case


RUNNERS: dict[str, Callable[[Case], None]] = {
    "close_codes.json": close_code,
    "connections.json": connection,
    "nacks.json": nack,
    "resumes.json": chat,
    "chats.json": chat,
    "outbox.json": chat,
    "terminals.json": terminal,
    "agents.json": agent,
}
