"""The commands as people run them: what they print, where, and how they exit."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from gateway.cli.commands.serve import reachable
from gateway.cli.console.output import say
from gateway.cli.main import main, parser
from tests.sandbox.cgroups import NO_GROUPS
from tests.support.gateway import PASSED_ON, REPOSITORY, Gateway

COMMANDS = (
    "serve",
    "token",
    "url",
    "migrate",
    "doctor",
    "init",
    "settings",
    "providers",
    "agents",
    "chat",
    "messages",
    "export",
    "dead-letters",
    "sessions",
    "snapshots",
    "backup",
    "restore",
)


def run(
    *words: str, data: Path, text: str = "", settings: dict[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env = base | {"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_LOCAL_LEVEL": "trusted", **(settings or {})}
    command = [sys.executable, "-m", "gateway", *words]
    return subprocess.run(command, env=env, cwd=REPOSITORY, input=text, capture_output=True, text=True, timeout=timeout)


def test_help_names_every_command_and_the_first_steps(tmp_path: Path) -> None:
    shown = run("--help", data=tmp_path)
    assert shown.returncode == 0
    for word in (*COMMANDS, "first steps"):
        assert word in shown.stdout
    assert list(tmp_path.iterdir()) == [], "help touches nothing"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parser().parse_args([command, "--help"])
    assert left.value.code == 0
    assert len(capsys.readouterr().out) > 100


def test_help_imports_none_of_the_heavy_parts(tmp_path: Path) -> None:
    """What makes `--help` quick, said without a clock: nothing that takes long to import is imported."""
    script = (
        "import sys, gateway.cli.main; gateway.cli.main.parser(); print([m for m in sys.modules if m in sys.argv[1:]])"
    )
    heavy = ["asyncio", "httpx", "uvicorn", "starlette", "structlog", "prompt_toolkit", "sqlite3", "jwt", "websockets"]
    found = subprocess.run([sys.executable, "-c", script, *heavy], cwd=REPOSITORY, capture_output=True, text=True)
    assert found.stdout == "[]\n", found.stdout + found.stderr


def test_no_command_is_wrong_usage(tmp_path: Path) -> None:
    shown = run(data=tmp_path)
    assert shown.returncode == 2
    assert "usage: holdfast" in shown.stdout


def test_every_problem_with_the_settings_is_one_line(tmp_path: Path) -> None:
    wrong = {"HOLDFAST_PORT": "many", "HOLDFAST_PROT": "1", "HOLDFAST_STORE": "postgresql://u:secret@h"}
    shown = run("serve", data=tmp_path, settings=wrong)
    assert shown.returncode == 2
    assert shown.stdout == ""
    lines = shown.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("holdfast: HOLDFAST_") for line in lines)
    assert "did you mean HOLDFAST_PORT?" in shown.stderr
    assert "secret" not in shown.stderr


def test_token_prints_a_token_and_nothing_else(tmp_path: Path) -> None:
    shown = run("token", "--user", "ada", "--email", "ada@example.com", "--ttl", "10m", data=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    secret = (tmp_path / "secrets" / "jwt_secret").read_text()
    claims = jwt.decode(shown.stdout.strip(), secret, algorithms=["HS256"])
    assert (claims["userId"], claims["email"]) == ("ada", "ada@example.com")
    assert 590 < claims["exp"] - time.time() <= 601
    again = run("token", "--user", "ada", "--email", "a@b", data=tmp_path)
    assert jwt.decode(again.stdout.strip(), secret, algorithms=["HS256"])["userId"] == "ada", "the secret is kept"


@pytest.mark.parametrize(
    "words",
    [
        ("--user", "", "--email", "e"),
        ("--user", "u", "--email", "e", "--ttl", "soon"),
        ("--user", "u\n", "--email", "e"),
    ],
)
def test_a_token_that_no_gateway_would_take_is_not_made(tmp_path: Path, words: tuple[str, ...]) -> None:
    shown = run("token", *words, data=tmp_path)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert shown.stderr.startswith("holdfast: ")


def test_migrate_makes_the_store_and_does_it_again(tmp_path: Path) -> None:
    for _ in range(2):
        shown = run("migrate", data=tmp_path / "data")
        assert shown.returncode == 0, shown.stderr
        assert "schema" in shown.stdout
    assert (tmp_path / "data" / "holdfast.db").exists()


def findings(shown: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(shown.stdout)["checks"]}


def test_doctor_finds_a_fresh_machine_well(tmp_path: Path) -> None:
    shown = run("doctor", "--json", data=tmp_path / "data", settings={"HOLDFAST_PORT": "0"})
    assert shown.returncode == 0, shown.stdout
    found = findings(shown)
    assert set(found) == {"data", "gateway", "store", "objects", "sandbox", "port", "clock", "files"}
    assert found["sandbox"]["state"] == "warn", "level trusted isolates nothing and is said"
    assert not (tmp_path / "data").exists(), "a diagnosis changes nothing"


@pytest.mark.parametrize("asked", [{}, {"HOLDFAST_LIMIT_MEMORY": "512m", "HOLDFAST_LIMIT_CPUS": "1.5"}], ids=str)
def test_doctor_says_whether_sandboxes_can_be_held_to_limits(asked: dict[str, str], tmp_path: Path) -> None:
    settings = {"HOLDFAST_PORT": "0", "HOLDFAST_LOCAL_LEVEL": "auto", **asked}
    limits = findings(run("doctor", "--json", data=tmp_path / "data", settings=settings))["limits"]
    if NO_GROUPS:
        assert (limits["state"], "is held to no limits" in limits["told"]) == ("warn" if asked else "ok", True)
        return
    named = ", ".join(f"{name}={value}" for name, value in asked.items()).replace("512m", "512 MiB")
    assert (limits["state"], limits["told"]) == (
        "ok", named or "none is set; control groups are there for HOLDFAST_LIMIT_*"
    )  # fmt: skip


def test_doctor_names_the_command_that_installs_the_agent_of_the_settings(tmp_path: Path) -> None:
    shown = run("doctor", "--json", data=tmp_path / "data", settings={"HOLDFAST_PORT": "0", "HOLDFAST_AGENT": "codex"})
    agent = findings(shown)["agent"]
    assert (shown.returncode, agent["state"]) == (1, "fail")
    assert agent["told"] == "HOLDFAST_AGENT: Codex is not installed: run `holdfast agents install codex`"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("doctor", "codex"), 1, "fail  installed   Codex is not installed: run `holdfast agents install codex`"),
        (("doctor", "demo"), 2, "wants one of claude-code, codex, pi, opencode, gemini, perhaps with @VERSION"),
        (("install", "claude"), 2, "wants claude-code: claude is the name of its program"),
        (("install", "my-agent --x"), 2, "wants one of claude-code, codex"),
        (("list",), 0, "To install one: holdfast agents install NAME"),
    ],
)
def test_agents_are_named_and_installed_before_they_are_tried(
    words: tuple[str, ...], code: int, told: str, tmp_path: Path
) -> None:
    shown = run("agents", *words, data=tmp_path / "data")
    assert (shown.returncode, told in shown.stdout + shown.stderr) == (code, True), shown
    assert not (tmp_path / "data").exists()


def test_agents_are_listed_as_objects(tmp_path: Path) -> None:
    shown = run("agents", "list", "--json", data=tmp_path / "data")
    listed = {agent["name"]: agent for agent in map(json.loads, shown.stdout.splitlines())}
    assert listed["demo"]["available"]
    assert (listed["codex"]["installed"], listed["codex"]["available"]) == ([], False)
    assert "holdfast agents install codex" in listed["codex"]["reason"]


def test_doctor_tells_what_to_do_about_each_ill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert run("migrate", data=data).returncode == 0
    (data / "holdfast.db").chmod(0o644)
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        shown = run("doctor", data=data, settings={"HOLDFAST_PORT": port, "HOLDFAST_SANDBOX_ENV_FILE": "/nowhere"})
    assert shown.returncode == 1
    told = {line.split()[1]: line for line in shown.stdout.splitlines() if line[:4].strip()}
    assert told["data"].startswith("fail")
    assert "chmod go-rwx" in shown.stdout
    assert told["port"].startswith("fail")
    assert told["sandbox"].startswith("fail")
    assert "HOLDFAST_SANDBOX_ENV_FILE" in shown.stdout


def test_a_directory_of_somebody_else_and_proxies_that_are_everybody_are_told(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "hosts").write_text("")
    objects, proxies = f"file://{theirs}", "10.0.0.0/8,::/0"
    settings = {"HOLDFAST_PORT": "0", "HOLDFAST_OBJECTS": objects, "HOLDFAST_TRUSTED_PROXIES": proxies}
    shown = findings(run("doctor", "--json", data=tmp_path / "data", settings=settings))
    assert (shown["objects"]["state"], shown["proxies"]["state"]) == ("fail", "warn")
    assert "has ::/0: every client" in shown["proxies"]["told"]
    served = run("serve", data=tmp_path / "data", settings=settings)
    assert (served.returncode, "files that are not Holdfast's (hosts)" in served.stderr) == (1, True)
    assert [each.name for each in theirs.iterdir()] == ["hosts"]


async def test_a_gateway_that_trusts_everybody_as_proxy_says_so_when_it_starts(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", TRUSTED_PROXIES="0.0.0.0/0") as gateway:
        assert "HOLDFAST_TRUSTED_PROXIES has 0.0.0.0/0" in gateway.log


def test_doctor_knows_a_store_from_the_future(tmp_path: Path) -> None:
    import contextlib
    import sqlite3

    data = tmp_path / "data"
    assert run("migrate", data=data).returncode == 0
    with contextlib.closing(sqlite3.connect(data / "holdfast.db")) as db:
        db.execute("PRAGMA user_version = 999")
        db.commit()
    shown = run("doctor", "--json", data=data, settings={"HOLDFAST_PORT": "0"})
    assert findings(shown)["store"]["state"] == "fail"
    assert "999" in findings(shown)["store"]["told"]


@pytest.mark.parametrize("words", [("messages", "s1"), ("chat", "--plain"), ("dead-letters", "list"), ("url",)])
def test_without_a_gateway_the_next_step_is_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    shown = run(*words, data=tmp_path, settings={"HOLDFAST_PORT": "9"})
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert "gateway serve" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("export", ".."),
        ("export", ""),
        ("messages", "../sessions/s1"),
        ("messages", "s1?x"),
        ("messages", "s" * 129),
        ("chat", "--plain", "a/b"),
        ("dead-letters", "list", "--session", ".."),
        ("dead-letters", "drop", "--all", "--yes", "--session", "\x1b[31m"),
    ],
    ids=lambda words: f"{words[0]} {words[-1][:9]!a}",
)
def test_what_is_no_session_id_becomes_no_path(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PORT", "no setting is read before")
    with pytest.raises(SystemExit) as left:
        main(words)
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    assert "is no session id" in err
    assert "\x1b" not in err


async def test_serve_says_where_it_is_and_what_to_try(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        first, *rest = gateway.printed.splitlines()
        assert gateway.url in first
        assert json.loads((tmp_path / "data" / "lock").read_text())["address"] == gateway.url
        assert gateway.pid > 0
        code = await gateway.terminate()
        assert code == 0
        printed = gateway.printed
    assert "gateway chat" in printed
    assert f"{gateway.url}/" in printed
    assert rest is not None
    assert all(json.loads(line)["event"] for line in gateway.log.splitlines()), "the log is JSON lines, on stderr"


def test_a_name_that_the_terminal_cannot_spell_is_told_as_well_as_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(told, encoding="ascii"))
    say("you are jürgen there")
    assert told.getvalue() == b"you are j?rgen there\n"


async def test_a_second_gateway_on_the_same_data_says_who_has_it(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        shown = run("serve", data=tmp_path / "data", settings={"HOLDFAST_PORT": "0"})
        assert shown.returncode == 1
        assert str(gateway.pid) in shown.stderr
        assert gateway.url in shown.stderr
        moving = run("migrate", data=tmp_path / "data")
        assert moving.returncode == 1
        assert "stop it first" in moving.stderr
        doctor = run("doctor", "--json", data=tmp_path / "data")
        assert str(gateway.pid) in findings(doctor)["gateway"]["told"]


def test_an_address_that_is_taken_is_one_line(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        shown = run("serve", data=tmp_path, settings={"HOLDFAST_PORT": str(taken.getsockname()[1])})
    assert shown.returncode == 1
    assert shown.stderr.count("\n") == 1
    assert "cannot listen" in shown.stderr


def test_a_store_that_cannot_be_opened_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_text("this is no database, and long enough to be looked at twice" * 20)
    shown = run("serve", data=tmp_path, settings={"HOLDFAST_PORT": "0"})
    assert shown.returncode != 0
    assert shown.stdout == "", "nothing is announced that cannot be served"
    assert shown.stderr.splitlines()[-1].startswith("holdfast: cannot open the database")


def test_what_the_starter_left_open_goes_no_further_than_the_gateway() -> None:
    """A sandbox that held the starter's pipe kept whoever read it waiting after the gateway had gone."""
    reading, writing = os.pipe()
    script = (
        "import subprocess, sys; from gateway.cli.commands.serve import keep_descriptors; keep_descriptors();"
        "look = 'import os, sys; os.fstat(int(sys.argv[1]))';"
        "subprocess.run([sys.executable, '-c', look, sys.argv[1]], close_fds=False)"
    )
    child = subprocess.run(
        [sys.executable, "-c", script, str(writing)],
        pass_fds=[writing], cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    os.close(reading)
    os.close(writing)
    assert "Bad file descriptor" in child.stderr


def test_garbage_is_collected_again_once_serve_is_loaded(tmp_path: Path) -> None:
    """Nothing is while it is being loaded, and what was loaded is left alone."""
    script = (
        "import atexit, gc; from gateway.cli.main import main;"
        "atexit.register(lambda: print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0)); main(['serve'])"
    )
    (tmp_path / "file").touch()
    environment = {"HOLDFAST_DATA_DIR": str(tmp_path / "file" / "data")}  # so that it ends
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, env=environment, capture_output=True, text=True
    )
    assert done.stdout == "True (50000, 10, 10) True\n"


def test_wide_frames_do_not_have_the_whole_heap_looked_at() -> None:
    """Each such look took 60 ms in which nobody was served, after every seventh frame of 10,000 arrays."""
    script = (
        "import gc; from gateway.cli.commands.serve import collect_rarely; from gateway.protocol import chat_frames;"
        "collect_rarely(); frame = b'{\"type\":\"ping\",\"x\":[' + b'[],' * 9990 + b'[]]}';"
        "before = gc.get_stats()[2]['collections']; [chat_frames.read_frame(frame) for _ in range(100)];"
        "print(gc.get_stats()[2]['collections'] - before)"
    )
    assert subprocess.check_output([sys.executable, "-c", script], cwd=REPOSITORY, text=True) == "0\n"


@pytest.mark.parametrize(
    ("listening", "told"),
    [
        ("http://0.0.0.0:80", "http://127.0.0.1:80"),
        ("http://[::]:80", "http://[::1]:80"),
        ("http://10.0.0.1:80", "http://10.0.0.1:80"),
    ],
)
def test_the_address_told_is_one_that_can_be_reached(listening: str, told: str) -> None:
    assert reachable(listening) == told


async def test_messages_prints_the_conversation_for_people_and_for_programs(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("s1")
        async with gateway.http(gateway.internal) as service:
            for text in ("hello", "two\nlines", "\x1b[31mred"):
                body = {"role": "system", "type": "note", "content": text}
                assert (await service.post("/internal/sessions/s1/messages", json=body)).status_code == 201
        people = run("messages", "s1", data=tmp_path / "data")
        programs = run("messages", "s1", "--json", data=tmp_path / "data")
        missing = run("messages", "s2", data=tmp_path / "data")
    assert people.returncode == 0
    assert people.stdout.startswith("#1 system note · ")
    assert "  two\n  lines\n" in people.stdout
    assert "\x1b" not in people.stdout + programs.stdout
    assert [json.loads(line)["content"] for line in programs.stdout.splitlines()] == [
        "hello",
        "two\nlines",
        "\x1b[31mred",
    ]
    assert missing.returncode == 1
    assert "no such session" in missing.stderr


LAST_WORK = """
import asyncio, atexit, sys
from obstore import put_async
from obstore.store import LocalStore
from gateway.cli import main as cli

async def keep():
    await put_async(LocalStore(sys.argv[1]), "key", b"content")

def work():
    asyncio.run(keep())
    atexit.register(print, "kept")
    return 3

cli.main = work
cli.run()
"""


def test_a_command_that_used_a_bucket_last_of_all_ends_with_its_own_code(tmp_path: Path) -> None:
    """The driver's threads may call Python while the interpreter ends: one process in ten aborted, its work done."""
    command = [sys.executable, "-c", LAST_WORK, str(tmp_path)]
    for _ in range(4):
        some = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
        assert [(one.communicate()[0], one.returncode) for one in some] == [("kept\n", 3)] * 8
