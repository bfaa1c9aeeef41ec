"""What tools bring back may be large: a picture of 2 MB, a command's output of 1.2 MB. It arrives, cut."""

import json
import random
import struct
import zlib

import pytest

from tests.agents.agents import AGENTS, AgentUnderTest, Model
from tests.agents.talk import AgentTalk, begin, order, settled, talking
from tests.support.gateway import Gateway

WITH_CORE = [each for each in AGENTS if each.has_core]
LARGEST = 100_000  # bytes of a frame about a result: 64 KiB of text, with what is escaped
SIDE = 830
NUMBERS = 190_000


def picture() -> bytes:
    """A PNG of 2 MB, which nothing makes smaller."""
    noise = random.Random(1)
    rows = b"".join(b"\0" + noise.randbytes(3 * SIDE) for _ in range(SIDE))

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


async def _used(talk: AgentTalk, prompt: str) -> list[str]:
    """The frames with results of the tools of one turn, as they came."""
    before = len(talk.heard)
    await talk.turn(prompt)
    frames = [json.dumps(frame) for frame in talk.heard[before:] if frame["type"] == "sdk_message"]
    return [frame for frame in frames if '"tool_result"' in frame]


@pytest.mark.parametrize("under_test", WITH_CORE, ids=lambda each: each.name)
async def test_a_large_result_arrives_cut(gateway: Gateway, model: str, under_test: AgentUnderTest) -> None:
    session_id = f"{under_test.session}-large"
    await begin(gateway, session_id, under_test, Model(model), mode="all")
    async with talking(gateway, session_id) as talk:
        await talk.turn("@@say ready")
        workspace = gateway.data_dir / "sandboxes" / session_id / "kept" / "workspace"
        (workspace / "picture.png").write_bytes(picture())
        seen = await _used(talk, "@@picture /workspace/picture.png")
        told = await _used(talk, f"@@run seq {NUMBERS}")
        assert talk.errors == []
    assert [len(frame) < LARGEST for frame in (*seen, *told)] == [True, True]
    answers = [each for each in await settled(gateway, session_id) if each["role"] == "assistant"]
    results = [[block["type"] for block in each["metadata"].get("blocks", ())] for each in answers[1:]]
    assert all("tool_result" in kinds for kinds in results), results
    assert all(len(json.dumps(each)) < 2 * LARGEST for each in answers)
    await order(gateway, session_id, "sleep")
