"""`holdfast sessions`, as people type it, against a running gateway: what is said, where, and how it exits."""

import asyncio
import json
import os
import pty
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.client.login import whoever
from gateway.cli.commands.pending import row as pending_row
from gateway.cli.commands.sessions import full, question, row
from gateway.cli.main import main
from tests.support.gateway import PASSED_ON, Gateway
from tests.support.launcher import launch
from tests.support.waiting import until

ME = whoever()[0]
SESSION: dict[str, Any] = {
    "id": "s", "userId": "ada", "status": "error", "reason": "no\x1b[31m luck", "sandboxStatus": "disconnected",
    "provider": "local", "level": "contained", "incarnation": 3, "viewers": 2, "pending": 1, "lastSeq": 7,
    "createdAt": "1970-01-01T00:00:00.000Z", "lastActiveAt": "1970-01-01T00:01:00.000Z", "hasWorkspace": True,
    "title": "a\ntitle", "metadata": {"team": "blue"}, "sleepAfter": 90.5, "network": "none",
    "agent": ["run", "my agent"], "repoUrl": "https://example.com/a.git", "repoBranch": "main",
    "sync": {"state": "failed", "generation": 4, "lastSuccess": "1970-01-01T00:00:30.000Z", "lastError": "no room",
             "dirty": True, "degraded": None},
    "queue": {"position": 2, "reason": "too many run"}, "terminals": [{"name": "main"}],
}  # fmt: skip


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("sessions") / "data") as running:
        yield running


async def holdfast(data: Path, *words: str, typed: str | None = None, **settings: str) -> tuple[int, str, str]:
    """Run `holdfast sessions ...`: exit code, stdout, stderr. With `typed`, by a person at a terminal."""
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    keyboard, terminal = pty.openpty() if typed is not None else (-1, subprocess.DEVNULL)
    try:
        process = await launch(
            "sessions", *words,
            stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=base | {"HOLDFAST_DATA_DIR": str(data)} | settings,
        )  # fmt: skip
        if typed is not None:
            os.write(keyboard, typed.encode())
        async with asyncio.timeout(60):
            out, errors = await process.communicate()
    finally:
        for descriptor in (keyboard, terminal) if typed is not None else ():
            os.close(descriptor)
    return process.returncode or 0, out.decode(), errors.decode()


async def test_the_life_of_a_session_of_ones_own(gateway: Gateway) -> None:
    data = gateway.data_dir
    code, out, errors = await holdfast(data, "list")
    assert (code, out) == (0, "")
    assert "no sessions yet; make one with: " in errors
    assert "sessions create" in errors
    assert await holdfast(data, "list", "--json") == (0, "", "")

    wish = ("--title", "a try", "--sleep-after", "4h", "--agent", "cat -u", "--env", "A=secret", "--env", "PATH")
    assert await holdfast(data, "create", "first", *wish) == (0, "first\n", "")
    code, out, errors = await holdfast(data, "create", "first", "--title", "another")
    assert (code, out) == (0, "first\n")
    assert "existed already" in errors

    code, out, _ = await holdfast(data, "show", "first", "--json")
    described = json.loads(out)
    assert (code, described["userId"], described["title"]) == (0, ME, "a try")
    assert (described["sleepAfter"], described["agent"]) == (14400, ["cat", "-u"])
    code, out, _ = await holdfast(data, "show", "first")
    assert code == 0
    assert "sleeps after: 14400 s\n" in out
    assert "secret" not in out

    await until_running(gateway, "first")
    assert await holdfast(data, "sleep", "first") == (0, "first: sleeping\n", "")
    code, out, _ = await holdfast(data, "wake", "first", "--json")
    assert (code, json.loads(out)["status"] in ("starting", "running")) == (0, True)
    assert await holdfast(data, "pause", "first") == (0, "first: paused\n", "")
    code, out, errors = await holdfast(data, "wake", "first")
    assert (code, out) == (1, "")
    assert "paused" in errors
    code, out, _ = await holdfast(data, "resume", "first", "--env", "A=other")
    assert (code, out.startswith("first: ")) == (0, True)

    code, out, _ = await holdfast(data, "list")
    head, line = out.splitlines()
    assert head.split() == ["SESSION", "USER", "STATUS", "IDLE", "VIEWERS", "WHERE", "TITLE"]
    assert line.startswith(f"first    {ME}")
    assert line.endswith("a try")


async def until_running(gateway: Gateway, session_id: str) -> None:
    async with gateway.http(gateway.admin) as admin:

        async def runs() -> bool:
            return bool((await admin.get(f"/api/sandboxes/{session_id}")).json()["status"] == "running")

        await until(runs, f"{session_id} runs")


async def test_deleting_asks_first(gateway: Gateway) -> None:
    data = gateway.data_dir
    await gateway.create("doomed", title="a title")
    code, out, errors = await holdfast(data, "delete", "doomed")
    assert (code, out) == (1, "")
    assert "add --yes" in errors
    code, out, errors = await holdfast(data, "delete", "doomed", typed="n\n")
    assert (code, out) == (1, "")
    assert "Delete session doomed (a title)? Its sandbox and its files are lost" in errors
    code, out, _ = await holdfast(data, "delete", "doomed", typed="y\n")
    assert (code, out) == (0, "doomed: archived\n")
    assert await holdfast(data, "create", "doomed", "--user", "ada") == (0, "doomed\n", "")
    code, out, _ = await holdfast(data, "delete", "doomed", "--purge", "--yes")
    assert (code, out) == (0, "doomed: gone, with its conversation\n")
    code, out, errors = await holdfast(data, "show", "doomed")
    assert (code, out) == (1, "")
    assert "there is no such session" in errors


async def test_sessions_of_others_and_of_the_services(gateway: Gateway) -> None:
    data = gateway.data_dir
    code, out, _ = await holdfast(data, "create", "--user", "bob", "--json")
    bobs = json.loads(out)
    assert (code, bobs["userId"], len(bobs["id"])) == (0, "bob", 32)
    code, out, _ = await holdfast(data, "create", "services", "--service", "--json")
    assert (code, json.loads(out)["userId"]) == (0, None)
    code, out, _ = await holdfast(data, "list", "--user", "bob", "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [bobs["id"]]
    code, out, errors = await holdfast(data, "list", "--user", "nobody")
    assert (code, out) == (0, "")
    assert "no sessions of nobody" in errors
    code, out, errors = await holdfast(data, "create", "services", "--user", "bob")
    assert (code, out) == (1, "")
    assert "(409)" in errors


async def test_a_message_that_waits_is_listed_and_cancelled(gateway: Gateway) -> None:
    data = gateway.data_dir
    await gateway.create("waits", agent=["cat"])
    assert (await holdfast(data, "pause", "waits"))[0] == 0
    async with gateway.http(gateway.internal) as client:
        wish = {"role": "user", "content": "so\nwhat", "deliver": True}
        seq = (await client.post("/internal/sessions/waits/messages", json=wish)).json()["seq"]
    code, out, _ = await holdfast(data, "pending", "waits")
    assert (code, "so" in out, "until" in out) == (0, True, True)
    code, out, _ = await holdfast(data, "pending", "waits", "--json")
    assert json.loads(out)["seq"] == seq
    assert await holdfast(data, "cancel", "waits", str(seq)) == (
        0,
        f"#{seq}: cancelled; the agent will not get it\n",
        "",
    )
    code, out, errors = await holdfast(data, "cancel", "waits", str(seq))
    assert (code, out, "(409)" in errors) == (1, "", True)
    assert await holdfast(data, "pending", "waits") == (
        0,
        "",
        "holdfast: no message waits: the agent has all of them\n",
    )


async def test_a_gateway_elsewhere_by_its_address_and_a_token(gateway: Gateway, tmp_path: Path) -> None:
    """From a machine that shares nothing with it: as a user by a JWT, as a service by the API token."""
    await gateway.create("eves", "eve")
    there = ("--url", gateway.url)
    as_eve = (*there, "--token", gateway.token("eve"))
    code, out, _ = await holdfast(tmp_path, "list", "--json", *as_eve)
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["eves"]
    code, out, _ = await holdfast(tmp_path, "create", "eves-2", "--json", *as_eve)
    assert (code, json.loads(out)["userId"]) == (0, "eve")
    code, _, errors = await holdfast(tmp_path, "create", "eves-3", "--user", "ada", *as_eve)
    assert (code, "(403)" in errors) == (1, True)
    code, out, _ = await holdfast(tmp_path, "show", "eves", *there, HOLDFAST_API_TOKEN=gateway.secret("api_token"))
    assert (code, "user:         eve\n" in out) == (0, True)
    code, out, errors = await holdfast(tmp_path, "list", *there)
    assert (code, out) == (1, "")
    assert "HOLDFAST_API_TOKEN" in errors


async def test_without_a_gateway_the_next_step_is_told(tmp_path: Path) -> None:
    code, out, errors = await holdfast(tmp_path, "list", HOLDFAST_PORT="9")
    assert (code, out) == (1, "")
    assert "gateway serve" in errors


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "../x"), "is no session id"),
        (("create", "s", "--user", "a", "--service"), "not allowed with"),
        (("create", "--env", "HOLDFAST_NOT_SET_HERE"), "write NAME=VALUE"),
        (("create", "--env", "=x"), "write NAME=VALUE"),
        (("delete",), "SESSION"),
        (("list", "--token", ""), "argument --token: it is empty"),  # a shell variable that is not set
        (("list", "--token", "a b"), "argument --token: this is no token"),
        ((), "ACTION"),
    ],
)
def test_wrong_usage_is_told(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["sessions", *words])
    assert left.value.code == 2
    assert told in capsys.readouterr().err


def test_a_session_is_told_in_words_that_no_terminal_obeys() -> None:
    assert row(SESSION, 360.0) == ("s", "ada", "error", "5m", "2", "local", "a\\ntitle")
    assert row({**SESSION, "userId": None, "title": None}, 0.0)[1:] == ("-", "error", "0s", "2", "local", "")
    assert row({**SESSION, "provider": "docker", "image": "debian:13"}, 0.0)[5] == "docker debian:13"
    shown = full(SESSION)
    assert "\x1b" not in shown
    for line in (
        "status:       error (no\\x1b[31m luck)",
        "waits:        as number 2 to be started; too many run",
        "sandbox:      disconnected; local, contained, start 3",
        "agent:        run 'my agent'",
        "repository:   https://example.com/a.git main",
        "sleeps after: 90.5 s",
        "messages:     7 so far, 1 wait for the agent",
        "workspace:    generation 4, 1970-01-01T00:00:30.000Z; sync failed",
        "sync problem: no room",
        "terminals:    1",
        'metadata:     {"team": "blue"}',
    ):
        assert line in shown.splitlines()
    pull = {"image": "debian:12", "layers": 2, "ofLayers": 5, "bytes": 3 << 20, "ofBytes": 12 << 20}
    fetches = full({**SESSION, "image": "debian:12", "imageDigest": "debian@sha256:0", "pull": pull}).splitlines()
    assert "fetches:      the image debian:12: 2 of 5 layers, 3.0 MiB of 12.0 MiB" in fetches
    assert "image:        debian:12 debian@sha256:0" in fetches
    unknown = full({**SESSION, "pull": {**pull, "bytes": 0, "ofBytes": 0}})
    assert "fetches:      the image debian:12: 2 of 5 layers" in unknown.splitlines()
    server = {"command": ["serve", "my agent"], "connect": "ws://127.0.0.1:8080", "health": "/health"}
    assert "agent:        serve 'my agent', at ws://127.0.0.1:8080" in full({**SESSION, "agent": server}).splitlines()
    sync = {**SESSION["sync"], "generation": 0, "lastError": None}
    bare = {**SESSION, "userId": None, "agent": None, "repoUrl": None, "repoBranch": None, "sleepAfter": None}
    bare |= {"queue": None, "metadata": {}, "title": None, "sync": sync, "reason": None, "terminals": None}
    shown = full(bare)
    assert "user:         none: it belongs to the services" in shown
    assert "sleeps after: as HOLDFAST_SLEEP_AFTER says" in shown
    assert "nothing stored yet" in shown
    assert not [name for name in ("title", "waits", "repository", "metadata") if f"{name}:" in shown]
    assert question(bare, purge=True) == (
        "Delete session s? Its sandbox, its files and its conversation are lost. [y/N] "
    )


def test_a_message_that_waits_is_one_line_whatever_it_says() -> None:
    message = {"seq": 7, "createdAt": "then", "inSandbox": False, "expiresAt": "soon", "content": "a\nb\x1b[31m"}
    seq, created, where, text = pending_row(message)
    assert (seq, created, where) == ("7", "then", "until soon")
    assert "\n" not in text
    assert "\x1b" not in text
    assert pending_row({**message, "inSandbox": True})[2] == "in the sandbox"
    assert pending_row({**message, "expiresAt": None})[2] == "as long as it takes"
    assert pending_row({**message, "content": {"a": 1}})[3] == '{"a": 1}'
    assert pending_row({**message, "content": None, "omitted": True})[3] == "(too long to be listed)"
