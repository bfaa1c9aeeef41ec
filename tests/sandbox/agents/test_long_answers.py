"""Long answers and long lines, as agents write them: what goes to the gateway, and what the answer is in the end."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from gateway.agents.transcript import AgentAnswer, Transcript
from sandbox.agents.catalogue import CORES
from sandbox.agents.core import Core, Launch, Past, ServerCore, ToGateway
from sandbox.bridge.agent.long_lines import CuttingSplitter

PIECE = "0123456789abcdef" * 4
Line = dict[str, Any]


def claude_says(text: str) -> Iterator[Line]:
    for at in range(0, len(text), len(PIECE)):
        delta = {"type": "text_delta", "text": text[at : at + len(PIECE)]}
        yield {"type": "stream_event", "event": {"type": "content_block_delta", "delta": delta}}
    yield {"type": "assistant", "message": {"model": "m", "content": [{"type": "text", "text": text}]}}


def claude_used(output: str) -> Line:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": output}}
    block = {"type": "tool_result", "tool_use_id": "t", "content": [picture, {"type": "text", "text": output}]}
    return {"type": "user", "message": {"content": [block]}}


def codex_says(text: str) -> Iterator[Line]:
    for at in range(0, len(text), len(PIECE)):
        said = {"itemId": f"i{len(text)}", "delta": text[at : at + len(PIECE)]}
        yield {"method": "item/agentMessage/delta", "params": said}
    item = {"type": "agentMessage", "id": f"i{len(text)}", "text": text}
    yield {"method": "item/completed", "params": {"item": item}}


def codex_used(output: str) -> Line:
    item = {"type": "commandExecution", "id": "t", "aggregatedOutput": output, "status": "completed"}
    return {"method": "item/completed", "params": {"item": item}}


def pi_says(text: str) -> Iterator[Line]:
    """As versions before 0.87 do: with all that was said so far in each line."""
    for at in range(0, len(text), len(PIECE)):
        said = {"type": "text_delta", "delta": text[at : at + len(PIECE)], "partial": text[: min(at, 1000)]}
        yield {"type": "message_update", "assistantMessageEvent": said}
    yield {"type": "message_end", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}


def pi_used(output: str) -> Line:
    content = [{"type": "text", "text": output}]
    return {"type": "message_end", "message": {"role": "toolResult", "toolCallId": "t", "content": content}}


def acp_updates(kind: str, **update: Any) -> Line:
    return {"method": "session/update", "params": {"update": {"sessionUpdate": kind, **update}}}


def acp_says(text: str) -> Iterator[Line]:
    for at in range(0, len(text), len(PIECE)):
        yield acp_updates("agent_message_chunk", content={"type": "text", "text": text[at : at + len(PIECE)]})


def acp_used(output: str) -> Line:
    return acp_updates("tool_call_update", toolCallId="t", status="completed", rawOutput=output)


def opencode_tells(kind: str, **properties: Any) -> Line:
    return {"type": kind, "properties": {"sessionID": "ses_1", **properties}}


def opencode_has(part: str, **members: Any) -> Line:
    return opencode_tells("message.part.updated", part={"id": part, "messageID": "m", **members})


def opencode_says(text: str) -> Iterator[Line]:
    name = f"t{text[:2]}{len(text)}"
    yield opencode_has(name, type="text", text="")
    for at in range(0, len(text), len(PIECE)):
        yield opencode_tells("message.part.delta", partID=name, field="text", delta=text[at : at + len(PIECE)])
    yield opencode_has(name, type="text", text=text, time={"end": 1})


def opencode_used(output: str) -> Line:
    return opencode_has("x", type="tool", tool="read", callID="t", state={"status": "completed", "output": output})


AGENTS: dict[str, tuple[list[Line], Callable[[str], Iterator[Line]], Callable[[str], Line], Line]] = {
    "claude-code": ([], claude_says, claude_used, {"type": "result"}),
    "codex": (
        [{"id": 1, "result": {}}, {"id": 2, "result": {"thread": {"id": "t"}}}],
        codex_says,
        codex_used,
        {"method": "turn/completed", "params": {"turn": {"status": "completed"}}},
    ),
    "pi": ([], pi_says, pi_used, {"type": "agent_settled"}),
    "opencode": (
        [
            {"type": "server.connected"},
            {"answers": "h1", "id": "ses_1"},
            {"say": "go"},
            opencode_tells("message.updated", info={"id": "m", "role": "assistant", "time": {"completed": 1}}),
            {"answers": "h3"},
        ],
        opencode_says,
        opencode_used,
        opencode_tells("session.idle"),
    ),
    "acp": (
        [{"id": 1, "result": {}}, {"id": 2, "result": {"sessionId": "of-the-test"}}],
        acp_says,
        acp_used,
        {"id": 3, "result": {"stopReason": "end_turn"}},
    ),
}
every_agent = pytest.mark.parametrize("agent", AGENTS)


def begun(agent: str) -> Core:
    core = CORES[agent]()
    core.command(Launch(("agent",), {}), Past())
    core.begin(None)
    go = b'{"type":"message","seq":1,"content":"go"}'
    for line in AGENTS[agent][0]:
        said = json.dumps(line).encode()
        if "answers" in line:
            assert isinstance(core, ServerCore)
            core.answered(line["answers"], 200, said)
        else:
            core.down(go) if "say" in line else core.up([said])
    if core.ready:
        core.down(go)
    return core


def heard(core: Core, lines: list[Line]) -> list[bytes]:
    """The frames that come of these lines, of which some come together; time passes now and then."""
    frames: list[bytes] = []
    for at in range(0, len(lines), 7):
        together = [json.dumps(line).encode() for line in lines[at : at + 7]]
        outs = [*core.up(together), *(core.woken("gather") if at % 3 == 0 else ())]
        frames += [frame for out in outs if isinstance(out, ToGateway) for frame in out.frames]
    return frames


def stored(frames: list[bytes]) -> str:
    """The answer as it is kept."""
    transcript = Transcript()
    for frame in frames:
        found = transcript.feed(orjson.loads(frame), frame)
        if isinstance(found, AgentAnswer):
            return str(orjson.loads(found.payload)["content"])
    raise AssertionError("no answer")


def test_every_core_but_plain_is_tried() -> None:
    assert AGENTS.keys() == CORES.keys() - {"plain"}


@every_agent
@pytest.mark.parametrize("size", [1_000, 60_000, 150_000, 300_000])
def test_a_long_answer_goes_out_hardly_longer_than_it_is_and_is_kept_whole(agent: str, size: int) -> None:
    _, says, _, over = AGENTS[agent]
    text = PIECE * (size // len(PIECE))
    frames = heard(begun(agent), [*says(text), over])
    assert sum(map(len, frames)) < 1.5 * size + (64 << 10)
    assert stored(frames) == text


@every_agent
def test_many_texts_of_one_turn_are_kept_whole(agent: str) -> None:
    _, says, used, over = AGENTS[agent]
    texts = [f"{n} " + PIECE * (20_000 // len(PIECE)) for n in range(8)]
    lines = [line for text in texts for line in (*says(text), used("out"))]
    frames = heard(begun(agent), [*lines, over])
    assert sum(map(len, frames)) < 1.5 * sum(map(len, texts)) + (64 << 10)
    assert "".join(stored(frames).split()) == "".join("".join(texts).split())


@every_agent
def test_the_result_of_a_tool_that_wrote_megabytes_arrives_cut(agent: str) -> None:
    splitter, core = CuttingSplitter(), begun(agent)
    line = json.dumps(AGENTS[agent][2]("x" * 2_000_000)).encode() + b"\n"
    lines = [each for at in range(0, len(line), 65_536) for each in splitter.feed(line[at : at + 65_536])]
    out = core.up(lines)[-1]  # one of them is told of for the first time
    assert isinstance(out, ToGateway)
    (frame,) = out.frames
    assert len(frame) < 140_000
    (block,) = json.loads(frame)["message"]["message"]["content"]
    assert (block["type"], block["tool_use_id"]) == ("tool_result", "t")
    assert b"bytes left out" in frame
