"""A fork of the warm process is what `python -m gateway` is, to whoever started it."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.at_terminal import at_terminal
from tests.support.gateway import PASSED_ON, REPOSITORY
from tests.support.launcher import Launcher, launch

PIPE = asyncio.subprocess.PIPE


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {**base, "HOLDFAST_DATA_DIR": str(tmp_path / "data"), "HOLDFAST_LOCAL_LEVEL": "trusted"}


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["--help"], {}),
        (["--version"], {}),
        ([], {}),
        (["sing"], {}),
        (["sessions", "list"], {"HOLDFAST_PORT": "many", "HOLDFAST_NO_SUCH": "1"}),
        (["sessions", "list", "--url", "http://127.0.0.1:9"], {}),
    ],
)
async def test_it_says_the_same_and_ends_the_same(
    words: Sequence[str], more: dict[str, str], env: dict[str, str]
) -> None:
    forked = await launch(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env | more)
    typed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env | more, cwd=REPOSITORY
    )
    said, expected = await asyncio.gather(forked.communicate(), typed.communicate())
    assert (forked.returncode, *said) == (typed.returncode, *expected)


async def test_what_is_wrong_in_both_streams_can_be_read_as_one(env: dict[str, str]) -> None:
    forked = await launch("sing", stdout=PIPE, stderr=asyncio.subprocess.STDOUT, env=env)
    said, nothing = await forked.communicate()
    assert (b"invalid choice" in said, nothing) == (True, b"")


async def test_its_terminal_is_its_own(env: dict[str, str]) -> None:
    """Ctrl-C is the terminal's to send, to whoever has it as the controlling one."""
    async with at_terminal("serve", env=env | {"HOLDFAST_PORT": "0"}) as person:
        await person.until(b"Ctrl-C")
        person.type(b"\x03")
        assert await person.finish() == 0


async def test_what_a_launcher_started_ends_with_it(env: dict[str, str], tmp_path: Path) -> None:
    async with Launcher() as launcher:
        serving = await launcher.start(env | {"HOLDFAST_PORT": "0"}, tmp_path / "log")
        assert serving.stdout is not None
        assert b"Holdfast" in await serving.stdout.readline()
        assert serving.returncode is None
    assert serving.returncode == -signal.SIGKILL
