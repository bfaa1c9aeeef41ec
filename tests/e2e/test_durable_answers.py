"""What a gateway has answered is still so after kill -9 at once, on every store; a sandbox that has just died keeps
nobody from being paused; and a gateway that has lost a session ends nothing of it."""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.size import seeded, sized
from tests.campaign.sync.arena import Described, Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Directory
from tests.support.launcher import Launcher
from tests.support.postgres import PostgresServer
from tests.support.proxy import StoreProxy
from tests.support.trees import differences
from tests.support.waiting import until

SHOWN = ("status", "reason", "incarnation", "hasWorkspace", "title", "pending")
MANY_STARTS: dict[str, Any] = {"STARTS_AT_ONCE": 8, "STARTS_AT_ONCE_PER_USER": 8}

Verb = Callable[[Kept, str], Awaitable[Described | None]]


@pytest.fixture(scope="module")
async def launcher() -> AsyncIterator[Launcher]:
    async with Launcher() as warm:
        yield warm


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "sqlite":
        return {}
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return {"STORE": server.create_database()}


def shown(described: Described) -> dict[str, Any]:
    sync = {name: described["sync"][name] for name in ("generation", "lastError")}
    return {name: described[name] for name in SHOWN} | sync


async def asked(session: Kept, method: str, path: str = "", **body: Any) -> Described | None:
    """What was answered; None if the gateway died before."""
    answer = await session.ask(method, path, json=body)
    if answer is None:
        return None
    assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text}"
    told: Described = answer.json()
    return told


async def pauses_and_resumes(session: Kept, status: str) -> Described | None:
    return await asked(session, "POST", "/resume" if status == "paused" else "/pause")


async def sleeps_and_wakes(session: Kept, status: str) -> Described | None:
    return await asked(session, "POST", "/wake" if status == "sleeping" else "/sleep")


async def ends_and_begins_again(session: Kept, status: str) -> Described | None:
    if status == "archived":
        return await asked(session, "POST", agent=["cat"], title="again")
    return await asked(session, "DELETE")


async def syncs(session: Kept, _: str) -> Described | None:
    session.write(f"file-{session.rng.random()}")
    return await asked(session, "POST", "/sync")


async def puts_back(session: Kept, _: str) -> Described | None:
    return await asked(session, "POST", "/snapshots/1/restore", inPlace=True)


async def _prepare(arena: SyncArena) -> dict[str, tuple[Kept, Verb]]:
    """Two of each kind: one is woken while the other is put to sleep."""
    verbs: dict[str, Verb] = {
        "pause": pauses_and_resumes,
        "paused": pauses_and_resumes,
        "sleep": sleeps_and_wakes,
        "asleep": sleeps_and_wakes,
        "delete": ends_and_begins_again,
        "deleted": ends_and_begins_again,
        "sync": syncs,
        "back": puts_back,
    }
    sessions = dict(zip(verbs, await asyncio.gather(*map(arena.create, verbs)), strict=True))
    await sessions["paused"].post("/pause")
    await sessions["asleep"].post("/sleep")
    await asked(sessions["deleted"], "DELETE")
    for generation in range(2):
        sessions["back"].write("a", b"x" * generation)
        await sessions["back"].post("/sync")
    await sessions["back"].post("/pause")
    return {name: (sessions[name], verb) for name, verb in verbs.items()}


async def _answered_before_the_kill(arena: SyncArena, cases: dict[str, tuple[Kept, Verb]]) -> dict[str, Described]:
    """Everything is asked for at once, and the gateway killed at the moment of the last answer: to kill it while others
    still connect would be a test of the client's sockets."""
    answers: dict[str, Described] = {}
    now = {name: (await session.status())["status"] for name, (session, _) in cases.items()}

    async def ask(name: str) -> None:
        session, verb = cases[name]
        told = await verb(session, now[name])
        assert told is not None, arena.log
        answers[name] = told
        if len(answers) == len(cases):
            arena.gateway.process.kill()

    try:
        async with asyncio.TaskGroup() as asking:
            for name in cases:
                asking.create_task(ask(name))
    finally:
        await arena.gateway.kill()
    return answers


async def test_what_was_answered_is_so_after_a_kill(tmp_path: Path, launcher: Launcher, store: dict[str, Any]) -> None:
    seed, rng = seeded()
    cupboard = Directory(tmp_path / "objects")
    async with arena_on(tmp_path, cupboard, seed, rng, launcher=launcher, **MANY_STARTS, **store) as arena:
        cases = await _prepare(arena)
        for _ in range(sized(3, 40)):
            answers = await _answered_before_the_kill(arena, cases)
            assert answers
            await arena.start()
            for name, answer in answers.items():
                told = await cases[name][0].status()
                if answer["title"] == "again" and answer["status"] != "archived":  # it is on its way up
                    assert (told["title"], told["status"] != "archived") == ("again", True), f"{name}: seed={seed}"
                else:
                    assert shown(told) == shown(answer), f"{name}: seed={seed}"


async def test_that_a_session_has_secrets_is_known_after_a_kill(
    tmp_path: Path, launcher: Launcher, store: dict[str, Any]
) -> None:
    """Else it would be woken without them."""
    seed, rng = seeded()
    cupboard = Directory(tmp_path / "objects")
    env = {"API_KEY": "a-secret-of-ada"}
    async with arena_on(tmp_path, cupboard, seed, rng, launcher=launcher, **MANY_STARTS, **store) as arena:
        resumed, created = await asyncio.gather(arena.create("resumed"), arena.create("created"))
        await asyncio.gather(resumed.post("/sleep"), created.post("/pause"))
        await asyncio.gather(resumed.post("/resume", envVars=env), asked(created, "POST", "", envVars=env))
        await arena.gateway.restart(kill=True)
        await resumed.post("/sleep")
        assert (await resumed.post("/wake"))["status"] == "needs_env"
        assert (await created.post("/resume"))["status"] == "needs_env"


async def test_while_sqlite_cannot_write_the_answer_is_503_in_words(tmp_path: Path, launcher: Launcher) -> None:
    seed, rng = seeded()
    cupboard = Directory(tmp_path / "objects")
    async with arena_on(
        tmp_path, cupboard, seed, rng, launcher=launcher, patches=("short_patience",), **MANY_STARTS
    ) as arena:
        names = ("delete", "pause", "sleep", "sync")
        sessions = dict(zip(names, await asyncio.gather(*map(arena.create, names)), strict=True))
        with closing(sqlite3.connect(arena.gateway.data_dir / "holdfast.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            refused = await asyncio.gather(
                sessions["delete"].ask("DELETE"), *(sessions[name].ask("POST", f"/{name}") for name in names[1:])
            )
            for answer in refused:
                assert answer is not None
                assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable"), answer.text
                assert "the change holds" in answer.json()["error"]
            assert sessions["delete"].home.root.exists()
            other.execute("ROLLBACK")
        await asked(sessions["delete"], "DELETE")
        told = {name: await asked(sessions[name], "POST", f"/{name}") for name in ("pause", "sleep")}
        await arena.gateway.restart(kill=True)
        assert (await sessions["delete"].status())["status"] == "archived"
        for name, described in told.items():
            assert described is not None
            assert shown(await sessions[name].status()) == shown(described)


async def test_while_postgres_is_away_the_answer_is_durable_in_the_spool(
    tmp_path: Path, launcher: Launcher, postgres_server: PostgresServer
) -> None:
    seed, rng = seeded()
    cupboard = Directory(tmp_path / "objects")
    url = postgres_server.create_database()
    async with StoreProxy(postgres_server.port) as proxy:
        behind = url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
        async with arena_on(tmp_path, cupboard, seed, rng, launcher=launcher, STORE=behind) as arena:
            session = await arena.create("s0")
            proxy.leave()
            answer = await session.post("/pause")
            assert answer["status"] == "paused"
            await arena.gateway.kill()
            proxy.come_back()
            await arena.start()
            told = await until(session.status, "it is loaded again")
            assert shown(told) == shown(answer)


async def test_a_bridge_that_has_just_been_killed_keeps_nobody_from_pause_and_sleep(
    tmp_path: Path, launcher: Launcher
) -> None:
    """Its owner was told 503, or waited ten seconds for an agent that was dead."""
    seed, rng = seeded()
    cupboard = Directory(tmp_path / "objects")
    async with arena_on(
        tmp_path, cupboard, seed, rng, launcher=launcher, patches=("rescue_soon",), **MANY_STARTS
    ) as arena:
        sessions = await asyncio.gather(*(arena.create(f"s{number}") for number in range(3)))

        async def kill_and_stop(session: Kept, there: str, back: str) -> None:
            session.write(f"file-{rng.random()}")
            if (victim := session.bridge) is not None:
                victim.signal(signal.SIGKILL)
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01)))
            told = await session.post(there)
            assert told["status"] == {"/pause": "paused", "/sleep": "sleeping"}[there]
            await session.clean()
            _, stored = await session.stored()
            assert not differences(stored, session.disk)
            assert (await session.status())["status"] == told["status"]
            await session.post(back)
            await session.running()

        for turn in range(sized(2, 30)):
            steps = ("/pause", "/resume") if turn % 2 else ("/sleep", "/wake")
            await asyncio.gather(*(kill_and_stop(session, *steps) for session in sessions))
        assert "agent.stop_timeout" not in arena.gateway.log
        arena.acquit("killed and stopped")


async def test_a_gateway_that_has_lost_a_session_removes_nothing_of_it(
    tmp_path: Path, launcher: Launcher, postgres_server: PostgresServer
) -> None:
    """The other's snapshots were removed, and its owner was told 200."""
    seed, rng = seeded()
    cupboard = Directory(tmp_path / "objects")
    store: dict[str, Any] = {"STORE": postgres_server.create_database(), "JWT_SECRET": "s" * 40}
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    async with (
        arena_on(tmp_path / "first", cupboard, seed, rng, launcher=launcher, **store) as first,
        arena_on(tmp_path / "second", cupboard, seed, rng, launcher=launcher, **store) as second,
    ):
        session = await first.create("s0")
        session.write("a", b"1")
        await session.post("/sync")
        theirs = second.adopt("s0")
        await theirs.post("/wake")
        kept = await theirs.running()
        answer = await session.ask("DELETE")
        assert answer is not None
        assert (answer.status_code, answer.json()["code"]) == (503, "session_failed"), answer.text
        assert (theirs.home.workspace / "a").read_bytes() == b"1"
        number, stored = await theirs.stored()
        assert number == kept["sync"]["generation"]
        assert not differences(stored, theirs.disk)
        assert (await theirs.status())["status"] == "running"
