"""This tree takes over from each release of tests/releases/: its data directory, database and running sandboxes."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.support.chat import Frame, hear
from tests.support.gateway import REPOSITORY, Gateway
from tests.support.releases import archives, unpack
from tests.support.upgrade import (
    ASLEEP,
    BUSY,
    KEPT,
    LASTING,
    OF_A_RECORD,
    PAUSED,
    SESSIONS,
    Upgrade,
    answer_to,
    at_terminal,
    ok,
)
from tests.support.upgrade import upgraded as upgraded_from

WAYS: dict[str, dict[str, Any]] = {
    "in order, beside": {"level": "contained", "kill": False, "in_place": False},
    "killed, in place": {"level": "trusted", "kill": True, "in_place": True},
}


@pytest.fixture(
    scope="module",
    params=[(release, way) for release in archives() for way in WAYS],
    ids=lambda case: f"{case[0]} ended {case[1]}",
)
async def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Upgrade]:
    release, way = request.param
    place = tmp_path_factory.mktemp("upgrade")
    async with upgraded_from(archives()[release], place, **WAYS[way]) as upgrade:
        yield upgrade


def lasting(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: record[name] for name in OF_A_RECORD} for record in records]


def test_there_is_a_release_to_come_from() -> None:
    assert archives()


async def test_every_session_is_there_as_it_was_and_what_ran_runs(upgraded: Upgrade) -> None:
    left, found = upgraded.left, upgraded.found
    assert set(found.sessions) == set(left.sessions) == set(SESSIONS)
    for session_id in SESSIONS:
        before, after = left.sessions[session_id], found.sessions[session_id]
        assert {name: before.get(name) for name in LASTING} == {name: after.get(name) for name in LASTING}
        assert after["sync"]["generation"] >= before["sync"]["generation"]
    assert [found.sessions[each]["status"] for each in SESSIONS] == ["running", "running", "sleeping", "paused"]
    assert found.bridges == left.bridges, "the same processes"


async def test_every_record_is_there_in_order(upgraded: Upgrade) -> None:
    for session_id, before in upgraded.left.records.items():
        after = upgraded.found.records[session_id]
        assert [record["seq"] for record in before] == list(range(1, len(before) + 1))
        assert lasting(after) == lasting(before)
    assert [record["cid"] for record in upgraded.left.records[ASLEEP]][-1] == "service-1"


async def test_the_answer_under_way_goes_on_and_a_viewer_gets_what_it_missed(upgraded: Upgrade) -> None:
    gateway, seen = upgraded.gateway, upgraded.seen
    async with gateway.chat(BUSY, epoch=upgraded.epoch, offset=seen["_offset"]) as socket:
        welcome = await hear(socket, "welcome")
        assert (welcome["recovered"], welcome["epoch"], welcome["offset"]) == (True, upgraded.epoch, seen["_offset"])
        shown: list[Frame] = []
        missed = await hear(socket, "chunk", passed=shown)
        upgraded.tell("three")
        done = await hear(socket, "done", passed=shown)
    words = [frame for frame in [missed, *shown, done] if "_offset" in frame]
    assert [frame.get("text") for frame in words] == ["two;", "three;", None]
    assert [frame["_offset"] - seen["_offset"] for frame in words] == [1, 2, 3]
    records = await gateway.messages(BUSY)
    assert [(record["seq"], record["content"]) for record in records] == [(1, "count"), (2, "one;two;three;")]
    assert (records[1]["id"], records[1]["seq"]) == (done["messageId"], done["seq"])
    text, done = await upgraded.talk(BUSY, "again")
    assert (text, done["seq"]) == ("one;two;three;", 4)


async def test_the_terminal_goes_on_with_the_program_in_its_shell(upgraded: Upgrade) -> None:
    epoch, offset = upgraded.terminal
    async with at_terminal(upgraded.gateway, BUSY, epoch=epoch, offset=offset) as tab:
        await tab.shows(b"away42")
        assert (tab.ready["epoch"], tab.ready["offset"], tab.resets) == (epoch, offset, 0)
        await tab.type(b"hello\r")
        await tab.shows(b"got hello")
        await tab.type(b"end\recho it was $mine\r")
        await tab.shows(b"it was kept")
    async with at_terminal(upgraded.gateway, BUSY) as late:
        await late.shows(b"it was kept")
        assert b"42up" in late.shown, "the screen has what the release showed"


async def test_a_record_that_a_service_posts_again_is_the_one_there_is(upgraded: Upgrade) -> None:
    assert await upgraded.post() == upgraded.posted


async def test_a_share_opens_its_session_unless_it_has_no_number(upgraded: Upgrade) -> None:
    gateway, status = upgraded.gateway, f"/api/sandboxes/{BUSY}/status"
    async with gateway.http({"Authorization": f"Bearer {upgraded.share['token']}"}) as guest:
        looked = await guest.get(status)
    if "number" in upgraded.share:
        assert looked.status_code == 200, looked.text
    else:
        assert (looked.status_code, looked.json()["code"]) == (401, "share_ended")
    async with gateway.http() as client:
        share = (await ok(client.post(f"/api/sandboxes/{BUSY}/shares"))).json()
    address = f"{gateway.url.replace('http', 'ws', 1)}/ws/v2?sessionId={BUSY}"
    headers = {"Authorization": f"Bearer {share['token']}"}
    async with connect(address, additional_headers=headers, compression=None, proxy=None) as guest_socket:
        await hear(guest_socket, "welcome")


async def test_the_release_s_sandbox_is_used_until_it_stops_and_its_files_come_back(upgraded: Upgrade) -> None:
    gateway, bridge = upgraded.gateway, upgraded.bridge(KEPT)
    async with gateway.http() as client:
        for name, text in (("notes.txt", f"first of {KEPT}"), ("later.txt", "not synced")):
            live = await ok(client.get(f"/files/{KEPT}/{name}", params={"source": "live"}))
            assert live.text == text
        async with at_terminal(gateway, KEPT) as tab:  # its first one
            await tab.shows(b"$ ", b"# ")
            await tab.type(b"echo typed > typed.txt; echo $((6*7))up; echo in=$(pwd -P)=\r")
            await tab.shows(b"42up")
            contained = upgraded.found.sessions[KEPT]["level"] == "contained"
            if contained:
                await tab.shows(b"in=/session/workspace=")  # as the release has it, until this sandbox stops
        text, done = await upgraded.talk(KEPT, "/read typed.txt")
        assert (text, done["metadata"]["messages"]) == ("typed\n", 3)
        before = upgraded.found.sessions[KEPT]["sync"]["generation"]
        synced = (await ok(client.post(f"/api/sandboxes/{KEPT}/sync"))).json()
        assert synced["sync"]["generation"] > before
        assert upgraded.bridge(KEPT) == bridge
        await ok(client.post(f"/api/sandboxes/{KEPT}/sleep"))
        shutil.rmtree(upgraded.workspace(KEPT).parent)
        woken = (await ok(client.post(f"/api/sandboxes/{KEPT}/wake"))).json()
        assert (woken["status"], woken["incarnation"]) == ("running", 3 if contained else 2)
        assert upgraded.bridge(KEPT) != bridge, "a new one"
        if contained:
            async with at_terminal(gateway, KEPT) as tab:
                await tab.shows(b"$ ", b"# ")
                await tab.type(b"echo in=$(pwd -P)=$(readlink -f ~)=\r")
                await tab.shows(b"in=/workspace=/agent=")
        names = {path.name: path.read_text() for path in upgraded.workspace(KEPT).iterdir()}
        assert names == {"notes.txt": f"first of {KEPT}", "later.txt": "not synced", "typed.txt": "typed\n"}
    _, done = await upgraded.talk(KEPT, "and now?")
    assert done["metadata"]["messages"] == 4, "its home came back, too"


async def test_a_session_asleep_wakes_with_the_snapshot_the_release_stored(upgraded: Upgrade) -> None:
    shutil.rmtree(upgraded.workspace(ASLEEP).parent)
    text, done = await upgraded.talk(ASLEEP, "/read notes.txt")
    assert (text, done["metadata"]["messages"]) == (f"first of {ASLEEP}", 2)
    records = await upgraded.gateway.messages(ASLEEP)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert done["seq"] == len(upgraded.left.records[ASLEEP]) + 2


async def test_a_paused_session_is_resumed_and_what_waited_is_answered(upgraded: Upgrade) -> None:
    assert upgraded.found.sessions[PAUSED]["pending"] == 1
    async with upgraded.gateway.http() as client, upgraded.gateway.chat(PAUSED) as socket:
        await ok(client.post(f"/api/sandboxes/{PAUSED}/resume"))
        text, _ = await answer_to("waits", socket)
    assert text == f"first of {PAUSED}"


async def test_a_new_session_works(upgraded: Upgrade) -> None:
    await upgraded.gateway.create("new", user="bob")
    async with upgraded.gateway.chat("new", user="bob") as socket:
        await socket.send('{"type": "message", "content": "hello"}')
        assert (await hear(socket, "done"))["seq"] == 2


@pytest.mark.parametrize("release", archives())
async def test_a_database_on_postgres_is_taken_over(release: str, tmp_path: Path, postgres_url: str) -> None:
    gateway = Gateway(tmp_path / "data", STORE=postgres_url)
    gateway.code = unpack(archives()[release], tmp_path / "code")
    async with gateway:
        upgrade = Upgrade(gateway)
        await gateway.create(ASLEEP, title="on postgres")
        await upgrade.talk(ASLEEP, "/write notes.txt kept")
        posted = await upgrade.post()
        before = await gateway.messages(ASLEEP)
        assert await gateway.terminate() == 0, gateway.log[-4000:]
        gateway.code = REPOSITORY
        await gateway.start()
        assert lasting(await gateway.messages(ASLEEP)) == lasting(before)
        assert await upgrade.post() == posted
        async with gateway.http() as client:
            described = (await client.get("/api/sandboxes")).json()["sandboxes"]
            usage = (await ok(client.get("/api/me"))).json()
        assert [(each["id"], each["title"], each["lastSeq"]) for each in described] == [(ASLEEP, "on postgres", 3)]
        assert usage["limits"]["sessions"]["used"] == 1
        text, done = await upgrade.talk(ASLEEP, "/read notes.txt")
        assert (text, done["seq"], done["metadata"]["messages"]) == ("kept", 5, 2)
