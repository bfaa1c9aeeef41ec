"""Which agent a session gets, on a real gateway: by its word, by the gateway's default, and none at all."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import agent_server
from tests.support.chat import hear, say
from tests.support.gateway import REPOSITORY, Gateway
from tests.support.waiting import until

SERVER = Path(agent_server.__file__).read_text()
ECHO = [sys.executable, "-c", "import json\nwhile True: input(); print(json.dumps({'type': 'done'}), flush=True)"]


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    data, agents = tmp_path_factory.mktemp("agents") / "data", tmp_path_factory.mktemp("installed")
    (agents / "bin").mkdir()
    program = agents / "bin" / "claude"
    program.write_text("#!/bin/sh\necho a claude of ours\n")
    program.chmod(0o755)
    async with Gateway(data, AGENT="codex", AGENTS_DIR=agents, LOCAL_LEVEL="contained") as running:
        yield running


async def answer(gateway: Gateway, session_id: str) -> str:
    """What the agent says to a message."""
    async with gateway.chat(session_id) as socket:
        await hear(socket, "welcome")
        await say(socket, type="message", content="hello")
        said = await hear(socket, "sdk_message")
        await hear(socket, "done")
    return str(said["message"]["message"]["content"][0]["text"])


async def test_a_session_without_an_agent_says_so_and_has_terminals(gateway: Gateway) -> None:
    made = await gateway.create("bare", agent="none")
    assert made["agent"] == "none"
    assert await answer(gateway, "bare") == "this session has terminals only: create one with an agent to talk to"
    async with gateway.http(gateway.bearer()) as ada:
        opened = await ada.post("/api/sandboxes/bare/terminals/main", json={"command": ["sh"]})
    assert opened.status_code == 201


async def test_a_default_that_cannot_run_says_so_in_the_session(gateway: Gateway) -> None:
    assert (await gateway.create("usual"))["agent"] is None
    told = "Codex is not installed: run `holdfast agents install codex`"
    assert await answer(gateway, "usual") == told


async def test_the_log_says_that_the_default_cannot_run(gateway: Gateway) -> None:
    lines = [json.loads(line) for line in gateway.log.splitlines()]
    (told,) = (line["text"] for line in lines if line["event"] == "house.agent")
    assert told.startswith("HOLDFAST_AGENT: Codex is not installed: run `holdfast agents install codex`")


async def test_who_names_one_that_cannot_run_is_refused(gateway: Gateway) -> None:
    async with gateway.http(gateway.bearer()) as ada:
        refused = await ada.post("/api/sandboxes/wish", json={"agent": "codex"})
        assert refused.status_code == 409
        assert refused.json()["code"] == "agent_not_installed"
        bad = await ada.post("/api/sandboxes/wish", json={"agent": "claude"})
        assert (bad.status_code, bad.json()["code"]) == (400, "bad_member")
        assert (await ada.get("/api/sandboxes/wish")).status_code == 404


async def test_a_word_and_a_command_outlive_the_gateway(gateway: Gateway) -> None:
    await gateway.create("demo", agent="demo")
    assert await answer(gateway, "demo") == "hello"
    assert (await gateway.create("own", agent=ECHO))["agent"] == ECHO
    async with gateway.http(gateway.bearer()) as ada:
        assert (await ada.post("/api/sandboxes/demo/sleep")).status_code == 200
    await gateway.restart(kill=True)
    async with gateway.http(gateway.bearer()) as ada:
        found = {each["id"]: each["agent"] for each in (await ada.get("/api/sandboxes")).json()["sandboxes"]}
        assert (found["demo"], found["own"]) == ("demo", ECHO)
    assert await answer(gateway, "demo") == "hello"


async def test_an_agent_may_be_a_server_in_a_sandbox_without_a_network(gateway: Gateway) -> None:
    server = {"command": [sys.executable, "-u", "-c", SERVER, "8080", "1"], "connect": "ws://127.0.0.1:8080/agent"}
    made = await gateway.create("server", agent={**server, "health": "/health"})
    assert (made["agent"], made["network"]) == ({**server, "health": "/health"}, "none")
    async with gateway.chat("server") as socket:
        await hear(socket, "welcome")
        await say(socket, type="message", content="hello")
        assert (await hear(socket, "chunk"))["text"] == "you said hello"
        await hear(socket, "done")
        await say(socket, type="message", content="die")
        exited = await hear(socket, lambda frame: frame.get("status") == "agent_exited")
        assert exited["code"] == 3
        await say(socket, type="message", content="are you back?")
        await hear(socket, "done")
    async with gateway.http(gateway.bearer()) as ada:
        found = (await ada.get("/api/sessions/server/messages")).json()["messages"]
        bad = await ada.post("/api/sandboxes/other", json={"agent": {**server, "connect": "ws://10.0.0.1:8080"}})
    assert found[-1]["content"] == "you said are you back?"
    assert (bad.status_code, bad.json()["code"]) == (400, "bad_member")
    assert bad.json()["error"].startswith("agent.connect must be ws://HOST:PORT")


async def test_the_agent_of_all_sessions_may_be_a_server(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, "-u", "-c", SERVER, "8080", "1"])
    words = f"ws://127.0.0.1:8080/agent health=/health {command}"
    async with Gateway(tmp_path / "data", AGENT=words, LOCAL_LEVEL="contained") as gateway:
        await gateway.create("unnamed")
        named = await gateway.create("named", agent=words)
        assert named["agent"]["connect"] == "ws://127.0.0.1:8080/agent"
        for session_id in ("unnamed", "named"):
            async with gateway.chat(session_id) as socket:
                await hear(socket, "welcome")
                await say(socket, type="message", content="hello")
                assert (await hear(socket, "chunk"))["text"] == "you said hello"


async def test_installed_programs_are_on_the_path_of_terminals_and_cannot_be_changed(gateway: Gateway) -> None:
    change = 'if echo x >> "$(command -v claude)"; then echo changed; else echo kept; fi >> ran'
    look = f"claude > ran; {change}; mv ran out"
    await gateway.create("hand", agent="none")
    async with gateway.http(gateway.bearer()) as ada:
        made = await ada.post("/api/sandboxes/hand/terminals/look", json={"command": ["sh", "-c", look]})
        assert made.status_code == 201

        async def written() -> str:
            return (await ada.get("/files/hand/out")).raise_for_status().text

        assert await until(written, "what the terminal's program wrote") == "a claude of ours\nkept\n"


async def test_agents_are_listed_with_what_can_be_chosen(gateway: Gateway) -> None:
    async with gateway.http(gateway.bearer()) as ada:
        told = (await ada.get("/api/agents")).json()
    assert told["default"] == "codex"
    listed = {agent["name"]: agent for agent in told["agents"]}
    assert list(listed) == ["demo", "claude-code", "codex", "pi", "opencode", "gemini", "none"]
    assert (listed["demo"]["available"], listed["demo"]["reason"]) == (True, None)
    codex = listed["codex"]
    assert (codex["installed"], codex["current"], codex["available"]) == ([], None, False)
    assert "Codex" in codex["reason"]


async def test_a_chat_chooses_the_agent_of_its_new_session(gateway: Gateway) -> None:
    pipe, command = asyncio.subprocess.PIPE, [sys.executable, "-m", "gateway", "chat", "--plain"]

    async def chat(*words: str) -> str:
        talking = await asyncio.create_subprocess_exec(
            *command, *words, env=gateway.environment(), cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe
        )
        said, complained = await talking.communicate(b"hello\n")
        return (said if talking.returncode == 0 else complained).decode()

    assert await chat("--agent", "none") == "this session has terminals only: create one with an agent to talk to\n"
    assert "Codex is not installed: run `holdfast agents install codex`" in await chat("--agent", "codex")
    assert "--agent is for a new session" in await chat("demo", "--agent", "none")
