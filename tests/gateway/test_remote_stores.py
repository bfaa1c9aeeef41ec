"""A real gateway on a real Postgres, and on a real service: what its operator sees, on good days and on bad ones."""

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from websockets.exceptions import InvalidStatus

from gateway.config.loading import load_settings
from gateway.config.store_url import store_url
from gateway.wiring import spool_owner
from persistence.errors import CannotOpen
from persistence.spool.spool import Spool
from tests.support.chat import hear, say
from tests.support.gateway import PASSED_ON, REPOSITORY, Gateway
from tests.support.launcher import launch
from tests.support.postgres import PASSWORD, PostgresServer, _program
from tests.support.records import said
from tests.support.sink import TOKEN, Rule, SinkProcess
from tests.support.waiting import until


async def holdfast(data: Path, *words: str, **settings: object) -> tuple[int, str, str]:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env = base | {"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_LOCAL_LEVEL": "trusted"}
    env |= {f"HOLDFAST_{name}": str(value) for name, value in settings.items()}
    process = await launch(
        *words, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def findings(data: Path, **settings: object) -> dict[str, dict[str, Any]]:
    _, out, errors = await holdfast(data, "doctor", "--json", PORT=0, **settings)
    assert PASSWORD not in out + errors
    return {check["name"]: check for check in json.loads(out)["checks"]}


async def ready(gateway: Gateway) -> tuple[int, dict[str, Any]]:
    async with gateway.http({}) as nobody:
        answer = await nobody.get("/ready")
    return answer.status_code, answer.json()


async def metric(gateway: Gateway, name: str) -> float:
    async with gateway.http(gateway.admin) as admin:
        text = (await admin.get("/metrics")).text
    found = re.search(rf"(?m)^{name} (\S+)$", text)
    assert found, name
    return float(found[1])


async def run_sql(url: str, statement: str) -> None:
    db = await asyncpg.connect(url)
    try:
        await db.execute(statement)
    finally:
        await db.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop."""
    with PostgresServer() as server:
        yield server


async def test_a_message_is_answered_on_postgres_and_is_there_after_a_kill(tmp_path: Path, postgres_url: str) -> None:
    async with Gateway(tmp_path / "data", STORE=postgres_url) as gateway:
        await gateway.create("s1")
        async with gateway.chat("s1") as socket:
            await say(socket, "message", cid="c1", content="hello")
            heard: dict[str, int] = {}  # in any order: a slow commit is spooled, and stored after the answer
            while not {"stored", "done"} <= heard.keys():
                frame = await hear(socket, lambda frame: frame["type"] == "done" or frame.get("stage") == "stored")
                heard[frame.get("stage", "done")] = frame["seq"]
        assert heard == {"stored": 1, "done": 2}

        async def all_stored() -> bool:
            assert await ready(gateway) == (200, {"status": "ready"})
            return await metric(gateway, "holdfast_spool_rows") == 0

        await until(all_stored, "ready, and nothing in the spool")
        assert await metric(gateway, "holdfast_queue_batch_writes_count") > 0
        assert await metric(gateway, "holdfast_queue_commit_seconds_count") > 0
        before = await gateway.messages("s1")
        await gateway.restart(kill=True)
        assert await gateway.messages("s1") == before
        assert [(each["seq"], each["role"]) for each in before] == [(1, "user"), (2, "assistant")]
        assert (PASSWORD in gateway.log, "postgresql://postgres:***@" in gateway.log) == (False, True)


async def test_an_outage_is_shown_and_does_not_stop_a_conversation(tmp_path: Path, own_server: PostgresServer) -> None:
    async with Gateway(tmp_path / "data", STORE=own_server.create_database()) as gateway:
        await gateway.create("s1")
        async with gateway.chat("s1") as socket:
            await say(socket, "message", cid="c1", content="hello")
            await hear(socket, "done")
            own_server.stop()
            await say(socket, "message", cid="c2", content="still there?")
            ack = await hear(socket, lambda frame: frame["type"] == "ack" and frame["cid"] == "c2")
            await hear(socket, "done")
            assert ack["stage"] == "accepted"

            async def behind() -> bool:
                return await ready(gateway) == (200, {"status": "ready", "degraded": ["store_behind"]})

            await until(behind, "the store is behind")
            assert await metric(gateway, "holdfast_spool_rows") > 0
            assert await metric(gateway, "holdfast_spool_failing") == 1
            spool = (await findings(tmp_path / "data", STORE=gateway.settings["STORE"]))["spool"]
            assert "wait for the store" in spool["told"]
            own_server.start()
            stored = await hear(socket, lambda frame: frame["type"] == "ack" and frame["cid"] == "c2")
            assert stored["stage"] == "stored"

        async def caught_up() -> bool:
            assert await ready(gateway) == (200, {"status": "ready"})
            return await metric(gateway, "holdfast_spool_rows") == 0

        await until(caught_up, "ready, and nothing in the spool")
        assert [each["seq"] for each in await gateway.messages("s1")] == [1, 2, 3, 4]


async def test_a_restart_without_the_database_loads_no_session_until_it_is_back(
    tmp_path: Path, own_server: PostgresServer
) -> None:
    async with Gateway(tmp_path / "data", STORE=own_server.create_database()) as gateway:
        await gateway.create("s1")
        async with gateway.chat("s1") as socket:
            own_server.stop()
            await say(socket, "message", cid="c1", content="hello")
            ack = await hear(socket, "ack")
            assert ack["stage"] == "accepted"
        await gateway.restart(kill=True)
        with pytest.raises(InvalidStatus) as refused:
            await gateway.chat("s1").__aenter__()
        assert refused.value.response.status_code == 503
        async with gateway.http(gateway.internal) as service:
            assert (await service.get("/internal/sessions/s1/messages")).status_code == 503
            own_server.start()

            async def served() -> bool:
                return (await service.get("/internal/sessions/s1/messages")).status_code == 200

            await until(served, "the history")
        assert (await gateway.messages("s1"))[0]["content"] == "hello"


async def test_what_the_database_refuses_can_be_mended_and_retried(tmp_path: Path, postgres_url: str) -> None:
    data = tmp_path / "data"
    async with Gateway(data, STORE=postgres_url) as gateway:
        await gateway.create("s1")
        rule = "CHECK (position('poison' in convert_from(payload, 'UTF8')) = 0)"
        await run_sql(postgres_url, f"ALTER TABLE messages ADD CONSTRAINT house_rule {rule}")
        async with gateway.chat("s1") as socket:
            await say(socket, "message", cid="c1", content="poison")
            nack = await hear(socket, "nack")
            await say(socket, "message", cid="c2", content="bread")
            await hear(socket, "done")
        assert (nack["cid"], nack["reason"]) == ("c1", "rejected")
        code, out, _ = await holdfast(data, "dead-letters", "list")
        assert code == 0
        assert "house_rule" in out
        number = out.split()[0]
        code, out, _ = await holdfast(data, "dead-letters", "retry", number)
        assert code == 1
        assert out.startswith(f"{number}: still refused: ")
        await run_sql(postgres_url, "ALTER TABLE messages DROP CONSTRAINT house_rule")
        code, out, _ = await holdfast(data, "dead-letters", "retry", "--all")
        # A commit that was slow was answered from the spool: then the answer, which repeats the word, was refused, too.
        assert (code, out.splitlines()[0]) == (0, f"{number}: stored in its place, seq 1")
        assert all(": stored in its place, seq " in line for line in out.splitlines())
        history = await gateway.messages("s1")
        assert (history[0]["seq"], history[0]["content"]) == (1, "poison")


async def test_migrate_needs_no_lock_and_says_the_schema(tmp_path: Path, postgres_url: str) -> None:
    async with Gateway(tmp_path / "data", STORE=postgres_url):
        code, out, errors = await holdfast(tmp_path / "data", "migrate", STORE=postgres_url)
    assert code == 0, errors
    assert re.search(r"has schema \d+, the newest", out)
    assert PASSWORD not in out + errors


async def test_migrate_tells_of_no_schema_it_has_not_seen(tmp_path: Path) -> None:
    code, out, errors = await holdfast(
        tmp_path / "data", "migrate", STORE="postgresql://u:hunter22hunter@127.0.0.1:9/db"
    )
    assert (code, out) == (1, "")
    assert errors.startswith("holdfast: ")
    assert "hunter22" not in errors
    assert "Traceback" not in errors


async def test_a_wrong_password_is_one_line_and_not_repeated(tmp_path: Path, postgres_url: str) -> None:
    wrong = postgres_url.replace(PASSWORD, "wrong-horse-battery")
    code, out, errors = await holdfast(tmp_path / "data", "serve", PORT=0, STORE=wrong)
    assert (code, out) == (1, "")
    assert errors.splitlines()[-1].startswith("holdfast: ")
    assert "wrong-horse" not in errors
    assert "Traceback" not in errors
    checked = await findings(tmp_path / "data", STORE=wrong)
    assert checked["store"]["state"] == "fail"
    assert "wrong-horse" not in json.dumps(checked)


async def test_doctor_examines_postgres_and_the_spool(tmp_path: Path, postgres_url: str) -> None:
    before = await findings(tmp_path / "data", STORE=postgres_url)
    assert before["store"]["state"] == "warn"
    assert "schema 0" in before["store"]["told"]
    assert (await holdfast(tmp_path / "data", "migrate", STORE=postgres_url))[0] == 0
    after = await findings(tmp_path / "data", STORE=postgres_url)
    assert after["store"]["state"] == "ok"
    assert after["rights"]["told"] == "role postgres is a superuser"
    assert after["tls"] == {"name": "tls", "state": "ok", "told": "off; the server is on this machine", "advice": ""}
    assert after["durable"]["state"] == "ok"
    assert after["spool"]["state"] in ("ok", "warn")
    assert "ms" in after["spool"]["told"]
    away = await findings(tmp_path / "data", STORE="postgresql://u:hunter22hunter@127.0.0.1:9/db")
    assert away["store"]["state"] == "fail"
    assert "hunter22" not in json.dumps(away)


async def test_doctor_misses_rights(tmp_path: Path, postgres_url: str) -> None:
    assert (await holdfast(tmp_path / "data", "migrate", STORE=postgres_url))[0] == 0
    name = f"weak_{urlsplit(postgres_url).path[1:][-12:]}"
    await run_sql(postgres_url, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    try:
        weak = postgres_url.replace("//postgres:", f"//{name}:")
        found = await findings(tmp_path / "data", STORE=weak)
    finally:
        await run_sql(postgres_url, f"DROP ROLE {name}")
    assert found["rights"]["state"] == "fail"
    assert "INSERT on messages" in found["rights"]["told"]
    assert "deploy/postgres-roles.sql" in found["rights"]["advice"]


@pytest.mark.parametrize(
    ("options", "login", "advice"),
    [
        ("", {"password": "wrong-horse-battery"}, "Check the user and the password"),
        ("", {"user": "nobody"}, "Check the user and the password"),
        ("nowhere", {}, "Create the database, or check its name"),
        ("?sslmode=require", {}, "Switch TLS on in the server, or check sslmode"),
        ("?sslmode=perhaps", {}, "Check HOLDFAST_STORE"),
        ("?sslmode=verify-full&sslrootcert=/nowhere.crt", {}, "Check sslrootcert"),
        ("?no_such_option=1", {}, "Check the options after the ? in HOLDFAST_STORE"),
        ("?work_mem=plenty", {}, "Check the options after the ? in HOLDFAST_STORE"),
    ],
    ids=["password", "user", "database", "no TLS", "no such mode", "no root certificate", "no option", "no value"],
)
async def test_doctor_and_serve_agree_on_what_no_start_survives(
    tmp_path: Path, postgres_server: PostgresServer, options: str, login: dict[str, str], advice: str
) -> None:
    store = postgres_server.url(f"postgres{options}", **login)
    found = (await findings(tmp_path / "data", STORE=store))["store"]
    code, out, errors = await holdfast(tmp_path / "data", "serve", PORT=0, STORE=store)
    assert (code, out) == (1, "")
    assert advice in errors.splitlines()[-1]
    assert (found["state"], found["advice"]) == ("fail", "`holdfast serve` does not start until this is fixed")
    assert advice in found["told"]
    assert "wrong-horse" not in json.dumps(found) + errors


async def test_doctor_takes_an_outage_as_serve_does(tmp_path: Path, postgres_url: str) -> None:
    for store in ("postgresql://u:p@127.0.0.1:9/db", f"{postgres_url}?target_session_attrs=read-only"):
        found = (await findings(tmp_path / "data", STORE=store))["store"]
        assert found["state"] == "fail"
        assert "starts without it and spools" in found["advice"]
        async with Gateway(tmp_path / "data", STORE=store) as gateway:
            assert "store.away" in gateway.log


async def test_doctor_fails_where_a_migration_is_due_that_the_role_may_not_do(
    tmp_path: Path, postgres_url: str
) -> None:
    name = f"weak_{urlsplit(postgres_url).path[1:][-12:]}"
    await run_sql(postgres_url, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    weak = postgres_url.replace("//postgres:", f"//{name}:")
    try:
        empty = (await findings(tmp_path / "data", STORE=weak))["store"]
        serving, _, _ = await holdfast(tmp_path / "data", "serve", PORT=0, STORE=weak)
        assert (await holdfast(tmp_path / "data", "migrate", STORE=postgres_url))[0] == 0
        await run_sql(postgres_url, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
        await run_sql(postgres_url, f"GRANT ALL ON SCHEMA public TO {name}")
        current = (await findings(tmp_path / "data", STORE=weak))["store"]
        await run_sql(postgres_url, "DELETE FROM schema_version WHERE number > 1")
        of_another = (await findings(tmp_path / "data", STORE=weak))["store"]
    finally:
        await run_sql(postgres_url, f"DROP OWNED BY {name}")
        await run_sql(postgres_url, f"DROP ROLE {name}")
    assert (empty["state"], serving, current["state"], of_another["state"]) == ("fail", 1, "ok", "fail")
    for found in (empty, of_another):
        assert "run `holdfast migrate` as the owner" in found["advice"]


async def test_the_documented_steps_lead_from_an_empty_server_to_a_gateway(
    tmp_path: Path, own_server: PostgresServer
) -> None:
    text = (REPOSITORY / "docs/operations/postgres.md").read_text().partition("# Conversations in Postgres\n\n")[2]
    steps = text[: text.index("\n`deploy/")].replace("?sslmode=verify-full&sslrootcert=/path/ca.pem", "")
    steps = steps.replace("db.example", f"127.0.0.1:{own_server.port}")
    script, serve = steps.rstrip().rsplit("\n", 1)
    assert serve.strip() == "holdfast serve"
    (tmp_path / "holdfast").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n')
    (tmp_path / "holdfast").chmod(0o755)
    programs = f"{tmp_path}:{Path(_program('psql')).parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "sh", "-e", "-c", f'{script}\necho "$HOLDFAST_STORE"', cwd=REPOSITORY,
        env={"PATH": programs, "PGPASSWORD": PASSWORD, "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
             "HOLDFAST_LOCAL_LEVEL": "trusted", "HOLDFAST_PORT": "0"},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    shown = out.decode()
    assert process.returncode == 0, shown
    assert "role holdfast_gateway may read and write, and may not create tables" in shown
    async with Gateway(tmp_path / "data", STORE=shown.splitlines()[-1]) as gateway:
        await gateway.create("s1")


async def test_a_server_that_hangs_is_said_to_hang(tmp_path: Path, own_server: PostgresServer) -> None:
    store = own_server.create_database()
    own_server.pause()
    try:
        (code, out, errors), checks = await asyncio.gather(
            holdfast(tmp_path / "data", "migrate", STORE=store), findings(tmp_path / "data 2", STORE=store)
        )
    finally:
        own_server.resume()
    found = checks["store"]
    assert (code, out) == (1, "")
    assert "the server does not answer" in errors
    assert "the server does not answer" in found["told"]
    assert "TimeoutError" not in errors + found["told"]


async def test_a_message_is_answered_on_a_service_and_arrives_there(tmp_path: Path) -> None:
    async with (
        SinkProcess() as sink,
        Gateway(tmp_path / "data", STORE=sink.url, INTERNAL_TOKEN=TOKEN) as gateway,
    ):
        await gateway.create("s1")
        async with gateway.chat("s1") as socket:
            await say(socket, "message", cid="c1", content="hello")
            stages = [(await hear(socket, "ack"))["stage"]]
            passed: list[dict[str, Any]] = []
            await hear(socket, "done", passed=passed)
            stages += [frame["stage"] for frame in passed if frame["type"] == "ack"]
            while "stored" not in stages:
                stages.append((await hear(socket, "ack"))["stage"])
        assert stages == ["accepted", "stored"]
        async with asyncio.timeout(30):
            while await sink.seqs("s1") != [1, 2]:
                pass
        assert await ready(gateway) == (200, {"status": "ready"})
        found = await findings(tmp_path / "data", STORE=sink.url, INTERNAL_TOKEN=TOKEN)
        assert found["store"]["state"] == "ok"
        await sink.misbehave(Rule(status=503))
        async with gateway.chat("s1") as socket:
            await say(socket, "message", cid="c2", content="and now?")
            await hear(socket, "done")
        async with asyncio.timeout(30):
            while "degraded" not in (await ready(gateway))[1]:
                pass
        assert await metric(gateway, "holdfast_sink_waiting") > 0
        assert await metric(gateway, "holdfast_sink_failing") == 1
        await gateway.restart()
        await sink.misbehave()
        async with asyncio.timeout(30):
            while await sink.seqs("s1") != [1, 2, 3, 4]:
                pass
        assert TOKEN not in gateway.log


@pytest.mark.parametrize(("status", "last"), [(201, "stored"), (422, "rejected")])
async def test_what_a_service_makes_of_a_message_from_before_a_restart_is_told(
    tmp_path: Path, status: int, last: str
) -> None:
    async with (
        SinkProcess() as sink,
        Gateway(tmp_path / "data", STORE=sink.url, INTERNAL_TOKEN=TOKEN) as gateway,
    ):
        await sink.misbehave(Rule(status=503))
        await gateway.create("s1")
        async with gateway.chat("s1") as socket:
            await say(socket, "message", cid="c1", content="hello")
            await hear(socket, "done")
        await gateway.restart()
        async with gateway.chat("s1") as socket:
            await say(socket, "message", cid="c1", content="hello")
            assert (await hear(socket, "ack"))["stage"] == "accepted"
            await sink.misbehave(Rule(seq=1, status=status, keep=status == 201))
            word = await hear(socket, lambda frame: frame["type"] in ("ack", "nack"))
            assert (word["cid"], word.get("stage") or word["reason"]) == ("c1", last)
            await say(socket, "message", cid="c1", content="hello")
            again = await hear(socket, "ack")
            assert (again["seq"] == 1) == (status == 201)


async def test_doctor_says_that_a_service_cannot_be_reached(tmp_path: Path) -> None:
    found = await findings(tmp_path / "data", STORE="http://127.0.0.1:9/api")
    assert found["store"]["state"] == "fail"
    assert "cannot be reached" in found["store"]["told"]


# -- whose spool it is ------------------------------------------------------------------------------------------------

HERE, THERE = store_url("postgresql://u:secret-one@h/db"), store_url("postgresql://u:secret-two@elsewhere/db")


async def spooled(path: Path, writes: int) -> None:
    async with Spool(path) as spool:
        for seq in range(1, writes + 1):
            await spool.append([said("s", seq)])


async def test_a_spool_belongs_to_the_store_it_was_filled_for(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    spool_owner.check(path, HERE)
    await spooled(path, 2)
    spool_owner.note(path, HERE)
    found = spool_owner.look(path)
    assert found == spool_owner.SpoolFile("postgresql", "postgresql://h/db", 2)
    spool_owner.check(path, HERE)
    for other in (THERE, store_url("sqlite:///x.db"), store_url("https://h/db")):
        with pytest.raises(CannotOpen, match="holds 2 accepted") as refused:
            spool_owner.check(path, other)
        assert "postgresql://h/db" in str(refused.value)
        assert "secret" not in str(refused.value)


async def test_letters_without_a_place_wait_for_a_person_and_not_for_the_store(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    path = data / "spool.db"
    old = store_url("postgresql://u:p@127.0.0.1:9/db")
    async with Spool(path) as spool:
        (row,) = await spool.append([said("s", 1)])
        record = row.write.append
        assert record is not None
        await spool.remove([row.no], [(record, "another gateway has the session")])
    spool_owner.note(path, old)
    assert spool_owner.look(path) == spool_owner.SpoolFile("postgresql", old.place, waiting=0, lost=1)
    spool_owner.check(path, old)
    for other in (THERE, store_url("sqlite:///x.db"), store_url("https://h/db")):
        with pytest.raises(CannotOpen, match=r"holds 1 dead letters of postgresql://127\.0\.0\.1:9/db") as refused:
            spool_owner.check(path, other)
        assert "dead-letters list" in str(refused.value)
        assert "until they are stored" not in str(refused.value)
    found = (await findings(data, STORE=old.get_secret_value()))["spool"]
    assert found["state"] == "warn"
    assert "1 dead letters" in found["told"]
    assert "wait for the store" not in found["told"]


async def test_an_empty_spool_goes_with_any_store_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "spool.db"
    await spooled(path, 0)
    spool_owner.note(path, HERE)
    spool_owner.check(path, THERE)
    spool_owner.check(path, store_url("sqlite:///x.db"))
    with pytest.raises(CannotOpen, match="Move it away"):
        spool_owner.check(path, store_url("https://h"))
    spool_owner.note(path, THERE)
    spool_owner.note(path, THERE)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT store FROM belongs_to").fetchall() == [("postgresql://elsewhere/db",)]


async def test_a_spool_that_was_never_noted_is_the_one_that_is_configured(tmp_path: Path) -> None:
    await spooled(tmp_path / "spool.db", 1)
    spool_owner.check(tmp_path / "spool.db", HERE)


def test_a_damaged_spool_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "spool.db").write_text("this is no database, and long enough to be looked at twice" * 20)
    with pytest.raises(CannotOpen, match="do not remove it"):
        spool_owner.check(tmp_path / "spool.db", HERE)


async def test_a_gateway_does_not_start_over_another_stores_accepted_messages(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    await spooled(data / "spool.db", 3)
    spool_owner.note(data / "spool.db", HERE)
    for store in ("", "postgresql://u:p@127.0.0.1:9/other", "http://127.0.0.1:9"):
        code, out, errors = await holdfast(data, "serve", PORT=0, STORE=store)
        assert (code, out) == (1, ""), errors
        assert "holds 3 accepted" in errors.splitlines()[-1]
        found = await findings(data, STORE=store)
        assert "fail" in (found["store"]["state"], found.get("spool", found["store"])["state"])


def test_the_data_directory_has_the_spool() -> None:
    settings = load_settings({"HOLDFAST_DATA_DIR": "/x", "HOLDFAST_STORE": "https://h"})
    assert settings.spool_path == Path("/x/spool.db")
