"""With the agent away: what is held, what is refused, what expires, and what happens when it returns."""

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign.stage import AGENT_SOURCE, Stage
from tests.campaign.verdict import Evidence
from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.waiting import until

AGENT = ["python3", "-c", AGENT_SOURCE, "0"]
SENDS = 500
HELD = 100


def _evidence(gateway: Gateway, session_id: str) -> Evidence:
    return Evidence.of(gateway.data_dir / "sandboxes" / session_id / "kept" / "workspace")


async def _send_all(gateway: Gateway, session_id: str, count: int) -> list[dict[str, Any]]:
    """Send `count` messages and return their acks and nacks, in the order they came."""
    async with gateway.chat(session_id) as socket:
        await hear(socket, "welcome")
        for number in range(1, count + 1):
            await say(socket, "message", cid=f"m-{number}", content=f"m-{number}")
        return [await hear(socket, lambda frame: frame["type"] in ("ack", "nack")) for _ in range(count)]


async def _paused_session(gateway: Gateway, session_id: str) -> None:
    await gateway.create(session_id, agent=AGENT)
    async with gateway.http() as client:
        answer = await client.post(f"/api/sandboxes/{session_id}/pause")
    assert answer.status_code == 200, f"{answer.text}\n{gateway.log[-4000:]}"
    assert answer.json()["status"] == "paused"


async def test_a_hundred_are_held_the_rest_refused_and_the_held_arrive_in_order(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await _paused_session(gateway, "away")
        answers = await _send_all(gateway, "away", SENDS)
        acks = [frame["cid"] for frame in answers if frame["type"] == "ack"]
        nacks = [frame for frame in answers if frame["type"] == "nack"]
        held = [f"m-{number}" for number in range(1, HELD + 1)]
        assert acks == held
        assert len(nacks) == SENDS - HELD
        assert {frame["reason"] for frame in nacks} == {"buffer_full"}
        assert await _status(gateway, "away", "pending") == HELD
        await gateway.restart(kill=True)  # the window survives, because it is stored
        assert await _status(gateway, "away", "pending") == HELD
        assert _evidence(gateway, "away").messages == []
        async with gateway.http() as client:
            assert (await client.post("/api/sandboxes/away/resume", json={})).status_code == 200
        await until(lambda: len(_evidence(gateway, "away").messages) >= HELD, "the held ones arrive")
        assert [note["cid"] for note in _evidence(gateway, "away").messages] == held

        async def all_answered() -> list[dict[str, Any]]:
            history = await gateway.messages("away")
            return history if len(history) >= 2 * HELD else []

        history = await until(all_answered, "the answers")
        users = [record for record in history if record["role"] == "user"]
        assert [record["cid"] for record in users] == held
        assert {record["status"] for record in users} == {"delivered"}


async def test_what_outlives_its_ttl_is_told_as_expired_and_stays_so(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", PENDING_TTL=1) as gateway:
        await _paused_session(gateway, "late")
        async with gateway.chat("late") as watching:
            await hear(watching, "welcome")
            answers = await _send_all(gateway, "late", HELD)
            assert {frame["type"] for frame in answers} == {"ack"}
            expired = [(await hear(watching, "expired"))["cid"] for _ in range(HELD)]
        assert sorted(expired) == sorted(frame["cid"] for frame in answers)
        assert await _status(gateway, "late", "pending") == 0
        async with gateway.chat("late") as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="m-7", content="m-7")
            assert (await hear(socket, "ack"))["status"] == "expired"  # a resend is answered, not delivered
        gateway.settings["PENDING_TTL"] = 60  # so short only for what was to expire
        await gateway.restart(kill=True)
        async with gateway.http() as client:
            await client.post("/api/sandboxes/late/resume", json={})
        await Stage(gateway, Random(0)).connected_one("late")
        async with gateway.chat("late") as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="after", content="after")
            await hear(socket, "done")
        assert [note["cid"] for note in _evidence(gateway, "late").messages] == ["after"]
        history = await gateway.messages("late")
        assert {record["status"] for record in history[:HELD]} == {"expired"}
        assert [record["seq"] for record in history] == list(range(1, HELD + 3))
        assert json.dumps(history).count('"expired"') == HELD


async def test_a_message_wakes_a_sleeping_session_and_attaching_does_not(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("idle", agent=AGENT)
        await Stage(gateway, Random(0)).connected_one("idle")
        async with gateway.http() as client:
            assert (await client.post("/api/sandboxes/idle/sleep")).json()["status"] == "sleeping"
        async with gateway.chat("idle") as socket:
            await hear(socket, "welcome")
            assert (await hear(socket, "connection_status"))["sandboxStatus"] == "sleeping"
            await say(socket, "ping", id=1)
            await hear(socket, "pong")
            assert await _status(gateway, "idle", "status") == "sleeping"
            await say(socket, "message", cid="up", content="up")
            done = await hear(socket, "done")
        assert done["metadata"]["answers"] == "up"
        assert await _status(gateway, "idle", "status") == "running"


# It reads its first line, then nothing until somebody writes `go`; then it answers all there is.
SLOW = """
import json, os, sys, time
def line():
    found = b""
    while not found.endswith(b"\\n"):
        found += os.read(0, 1)
    return json.loads(found)
def answer(frame):
    with open("heard", "a") as heard:
        heard.write(frame["cid"] + "\\n")
    print(json.dumps({"type": "done", "metadata": {}}), flush=True)
answer(line())
while not os.path.exists("go"):
    time.sleep(0.05)
while True:
    answer(line())
"""


async def test_a_message_that_waits_in_the_sandbox_is_cancelled_and_a_killed_gateway_remembers_it(
    tmp_path: Path,
) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("busy", agent=["python3", "-c", SLOW])
        seqs: dict[str, int] = {}
        async with gateway.chat("busy") as socket:
            await hear(socket, "welcome")
            for cid, size in (("first", 1), ("fills its pipe", 200_000), ("never", 1), ("after", 1)):
                await say(socket, "message", cid=cid, content="x" * size)
                seqs[cid] = (await hear(socket, "ack"))["seq"]
            async with gateway.http() as client:

                async def they_wait() -> bool:
                    found = (await client.get("/api/sandboxes/busy/pending")).json()["messages"]
                    return [each["cid"] for each in found if each["inSandbox"]] == ["never", "after"]

                await until(they_wait, "two that wait in the sandbox")
                one = "/api/sandboxes/busy/pending/"
                refused = await client.delete(f"{one}{seqs['fills its pipe']}")
                assert (refused.status_code, refused.json()["code"]) == (409, "not_pending")
                cancelled = await client.delete(f"{one}{seqs['never']}")
                assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled"), cancelled.text
            told = await hear(socket, "expired")
            assert (told["cid"], told["reason"]) == ("never", "cancelled")
        await gateway.restart(kill=True)
        workspace = gateway.data_dir / "sandboxes" / "busy" / "kept" / "workspace"
        (workspace / "go").write_text("")

        async def answered() -> list[dict[str, Any]]:
            records = await gateway.messages("busy")
            return records if sum(record["role"] == "assistant" for record in records) == 3 else []

        records = await until(answered, "three answers")
        expected = dict.fromkeys(("first", "fills its pipe", "after"), "delivered") | {"never": "cancelled"}
        assert {each["cid"]: each["status"] for each in records if each["role"] == "user"} == expected
        assert (workspace / "heard").read_text().splitlines() == ["first", "fills its pipe", "after"]


async def _status(gateway: Gateway, session_id: str, member: str) -> Any:
    async with gateway.http() as client:
        return (await client.get(f"/api/sandboxes/{session_id}/status")).json()[member]
