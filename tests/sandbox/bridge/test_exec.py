"""Commands through a real bridge, the friendly and the hostile."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.bridge.base.config import Config, parse_config
from sandbox.bridge.exec import BODY, BadCommand, ExecBody, parse_command
from sandbox.protocol.messages import WireError, read
from tests.support.bridge import BridgeProcess, running_bridge
from tests.support.waiting import until

# Lengths of sleep by which a test finds its own processes, and not those of another run.
LEFT_BEHIND, ABANDONED, CROWD = (f"{length}.{os.getpid()}" for length in (4242, 5151, 6161))


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    limits = {"drain_seconds": 0.2, "exec_at_once": 4}
    home = tmp_path_factory.mktemp("exec")
    with running_bridge(home, ["cat"], env={"KEY": "secret"}, limits=limits, exec_timeout=30) as bridge:
        yield bridge


async def run(bridge: BridgeProcess, **members: Any) -> dict[str, Any]:
    async with bridge.client() as http:
        answer = await http.post("/exec", json=members)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def processes_with(word: str) -> list[int]:
    """Who has `word` in its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def test_argv_is_run_without_a_shell(bridge: BridgeProcess) -> None:
    result = await run(bridge, argv=["printf", "%s|", "$(id)", "a b", ";", "--", "\n"])
    assert result == {
        "stdout": "$(id)|a b|;|--|\n|",
        "stderr": "",
        "exitCode": 0,
        "timedOut": False,
        "truncated": False,
    }


async def test_a_command_is_run_by_a_shell(bridge: BridgeProcess) -> None:
    result = await run(bridge, command="echo $KEY $MORE; pwd; echo oops >&2; exit 3", env={"MORE": "more"})
    assert result["stdout"] == f"secret more\n{bridge.workspace}\n"
    assert (result["stderr"], result["exitCode"]) == ("oops\n", 3)


async def test_cwd_is_taken_from_the_workspace(bridge: BridgeProcess) -> None:
    (bridge.workspace / "sub").mkdir(exist_ok=True)
    assert (await run(bridge, argv=["pwd"], cwd="sub"))["stdout"] == f"{bridge.workspace}/sub\n"
    assert (await run(bridge, argv=["pwd"], cwd="/"))["stdout"] == "/\n"


async def test_a_killed_command_has_the_code_a_shell_would_show(bridge: BridgeProcess) -> None:
    assert (await run(bridge, command="kill -9 $$"))["exitCode"] == 137


async def test_bytes_that_are_no_text_do_not_break_the_answer(bridge: BridgeProcess) -> None:
    assert (await run(bridge, command=r"printf 'a\377\000b'"))["stdout"] == "a\ufffd\0b"


BAD: list[Any] = [
    [],
    "ls",
    {},
    {"argv": []},
    {"argv": [""]},
    {"argv": "ls"},
    {"argv": ["ls", 1]},
    {"argv": ["a\0b"]},
    {"argv": ["x"] * 5000},
    {"command": ["ls"]},
    {"argv": ["ls"], "command": "ls"},
    {"argv": ["ls"], "cwd": 1},
    {"argv": ["ls"], "cwd": "a\0"},
    {"argv": ["ls"], "env": []},
    {"argv": ["ls"], "env": {"A=B": "c"}},
    {"argv": ["ls"], "env": {"": "c"}},
    {"argv": ["ls"], "env": {"A": 1}},
    {"argv": ["ls"], "env": {"A": "\0"}},
    {"argv": ["ls"], "timeout": 0},
    {"argv": ["ls"], "timeout": "1"},
    {"argv": ["ls"], "timeout": True},
    {"argv": ["ls"], "maxOutput": -1},
    {"argv": ["ls"], "shell": True},
]


def config(**members: Any) -> Config:
    base = {"session_id": "s", "incarnation": 1, "token": "t" * 20, "agent": ["cat"]}
    paths = {"kept": "/k", "workspace": "/w", "state": "/s", "agent_log": "/l"}
    return parse_config(json.dumps({**base, **paths, **members}).encode())


@pytest.mark.parametrize("members", BAD, ids=lambda members: repr(members)[:40])
def test_bad_requests_are_refused(members: Any) -> None:
    with pytest.raises((BadCommand, WireError)):
        parse_command(body(members), config())


def body(members: Any) -> ExecBody:
    return read(BODY, json.dumps(members).encode())


def test_bounds_are_never_beyond_the_bridges_own() -> None:
    command = parse_command(body({"argv": ["ls"], "timeout": 10**9, "maxOutput": 10**12}), config(exec_timeout=5))
    assert (command.timeout, command.max_output) == (5, 8 * 1024 * 1024)
    assert parse_command(body({"command": "ls"}), config()).argv == ("/bin/sh", "-c", "ls")


async def test_refusals_are_answers(bridge: BridgeProcess) -> None:
    async with bridge.client() as http:
        for body in (
            b"",
            b"{",
            b"[" * 100_000,
            b'{"argv":[]}',
            b'{"argv":["/no/such"]}',
            b'{"argv":["ls"],"cwd":"nowhere"}',
        ):
            answer = await http.post("/exec", content=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
            assert answer.json()["error"]
        answer = await http.post("/exec", content=b" " * (2 * 1024 * 1024 + 1))
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"{", "the body must be JSON"),
        (b'{"argv":["ls"],"cwd":"\\ud800"}', "the body must be JSON"),
        (b"[]", "known members are argv, command, cwd, env, timeout, maxOutput"),
        (b'{"argv":["ls"],"shell":true}', "known members are argv, command, cwd, env, timeout, maxOutput"),
        (b"{}", "give either argv or command"),
        (b'{"argv":"ls"}', "argv must be a list of strings"),
        (b'{"command":7}', "command a string"),
        (b'{"argv":["ls"],"cwd":1}', "cwd must be a path"),
        (b'{"argv":["ls"],"env":{"A=B":"c"}}', "env must be an object of strings"),
        (b'{"argv":["ls"],"timeout":0}', "timeout must be a number of seconds"),
        (b'{"argv":["ls"],"maxOutput":"1"}', "maxOutput must be a number of bytes"),
    ],
)
async def test_a_refusal_says_what_should_have_been_there(bridge: BridgeProcess, said: bytes, words: str) -> None:
    async with bridge.client() as http:
        answer = await http.post("/exec", content=said)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert words in answer.json()["error"]


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(ExecBody(env={"KEY": "secret"}))


async def health_answers(bridge: BridgeProcess, meanwhile: asyncio.Task[Any]) -> int:
    """How often /health answered while something else still ran."""
    answers = 0
    async with bridge.client() as http:
        while not meanwhile.done():
            assert (await http.get("/health")).status_code == 200
            answers += not meanwhile.done()
            await asyncio.sleep(0.01)
    return answers


ABUSE: dict[str, tuple[dict[str, Any], bool]] = {
    "a flood": ({"command": "yes", "timeout": 2, "maxOutput": 1000}, True),
    "a flood on both": ({"command": "yes & yes >&2", "timeout": 2, "maxOutput": 1000}, True),
    "an endless line": ({"command": "tr '\\0' x </dev/zero", "timeout": 2, "maxOutput": 1000}, True),
    "deaf to SIGTERM": ({"command": "trap '' TERM; while :; do sleep 0.1; done", "timeout": 0.3}, True),
    "reads input": ({"command": "cat; echo end"}, False),
    "background": ({"command": f"sleep {LEFT_BEHIND} & echo $!"}, False),
    "daemon": ({"command": f"setsid sleep {LEFT_BEHIND} & sleep 0.2"}, False),
    "daemon of a daemon": (
        {"command": f"setsid sh -c 'setsid sleep {LEFT_BEHIND} & wait' >/dev/null 2>&1 &"},
        False,
    ),
}


@pytest.mark.parametrize("name", ABUSE)
async def test_abuse_meets_its_limit_and_nobody_else_notices(bridge: BridgeProcess, name: str) -> None:
    members, times_out = ABUSE[name]
    assert bridge.process is not None
    command = asyncio.create_task(run(bridge, **members))
    answers = await health_answers(bridge, command)
    result = await command
    assert result["timedOut"] == times_out
    assert len(result["stdout"]) + len(result["stderr"]) < 3000
    assert answers or not times_out, "the bridge was not there for anybody else"
    await until(lambda: not processes_with(LEFT_BEHIND))
    if "flood" in name or "line" in name:
        assert result["truncated"]
        assert "[truncated: " in result["stdout"]
        assert result["stdout"].startswith(("y\ny\n", "xxx"))


async def test_a_long_output_that_ends_keeps_its_beginning_and_its_code(bridge: BridgeProcess) -> None:
    result = await run(bridge, command="seq 1 100000; exit 4", maxOutput=50)
    assert result["stdout"] == "".join(f"{n}\n" for n in range(1, 21))[:50] + "\n[truncated: 588845 more bytes]"
    assert (result["exitCode"], result["truncated"], result["timedOut"]) == (4, True, False)


async def test_exactly_the_bound_is_not_truncated(bridge: BridgeProcess) -> None:
    result = await run(bridge, argv=["printf", "12345"], maxOutput=5)
    assert (result["stdout"], result["truncated"]) == ("12345", False)


async def test_a_command_ends_with_the_request_that_asked_for_it(bridge: BridgeProcess) -> None:
    async with bridge.client() as http:
        request = asyncio.create_task(http.post("/exec", json={"argv": ["sleep", ABANDONED]}))
        await until(lambda: processes_with(ABANDONED))
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    await until(lambda: not processes_with(ABANDONED))


async def test_only_so_many_commands_run_at_once(bridge: BridgeProcess) -> None:
    async with bridge.client() as http:
        slow = [asyncio.create_task(run(bridge, command=f"sleep {CROWD}", timeout=20)) for _ in range(4)]
        await until(lambda: len(processes_with(CROWD)) >= 4)
        answer = await http.post("/exec", json={"argv": ["true"]})
        assert (answer.status_code, answer.json()["code"]) == (429, "busy")
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    await until(lambda: not processes_with(CROWD))
    assert (await run(bridge, argv=["true"]))["exitCode"] == 0


async def test_zombies_are_collected(bridge: BridgeProcess) -> None:
    assert bridge.process is not None
    await run(bridge, command="setsid sh -c 'sleep 0.05' >/dev/null 2>&1 & exit 0")
    children = Path(f"/proc/{bridge.process.pid}/task/{bridge.process.pid}/children")
    await until(lambda: not children.read_text().split())
