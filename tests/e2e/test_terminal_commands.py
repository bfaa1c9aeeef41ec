"""`holdfast attach`, `record` and `terminals` against the real gateway, with real sandboxes and programs."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.at_terminal import PATIENCE_SECONDS, at_terminal
from tests.support.gateway import Gateway
from tests.support.launcher import launch
from tests.support.native_terminal import Road
from tests.support.waiting import until

LEAVE = b"\x1d\x1d"
PROMPT = b"kept/workspace"  # where the shell is


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("terminals") / "data") as running:
        yield running


def environment(gateway: Gateway) -> dict[str, str]:
    return {**gateway.environment(), "TERM": "xterm"}


async def run(gateway: Gateway, *words: str, typed: bytes = b"") -> tuple[int, bytes, str]:
    pipe = asyncio.subprocess.PIPE
    process = await launch(
        *words, "--user", "ada",
        stdin=pipe, stdout=pipe, stderr=pipe, env=environment(gateway),
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await process.communicate(typed)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


async def test_a_person_works_leaves_and_comes_back(gateway: Gateway) -> None:
    await gateway.create("person", "ada")
    words = ("attach", "person", "--user", "ada")
    async with at_terminal(*words, env=environment(gateway)) as person:
        await person.until(PROMPT)
        person.type(b"answer=$((6*7)); stty size\r")
        await person.until(b"30 90\r\n")
        person.resize(100, 40)
        person.type(b"until [ \"$(stty size)\" = '40 100' ]; do :; done; echo resi''zed\r")
        await person.until(b"resized\r\n")
        person.type(LEAVE)
        assert await person.finish() == 0
        assert person.settings == person.before
    async with at_terminal(*words, env=environment(gateway)) as person:
        await person.until(b"resized")
        person.type(b"echo the answer: $answer; exit 7\r")
        await person.until(b"the answer: 42")
        assert await person.finish() == 7


async def test_an_editor_comes_back_after_a_long_cut(gateway: Gateway) -> None:
    await gateway.create("editor", "ada")
    async with Road(int(gateway.url.rsplit(":", 1)[1])) as road:
        url = f"http://127.0.0.1:{road.port}"
        async with at_terminal("attach", "editor", "--user", "ada", "--url", url, env=environment(gateway)) as person:
            await person.until(PROMPT)
            person.type(b"seq 1 500 > numbers; vim.tiny -u NONE -N numbers || vi numbers\r")
            await person.until(b"\x1b[?1049h")
            person.type(b"300G")
            await until(lambda: b"300" in person.seen)
            road.close()
            await person.until("reconnecting…".encode())
            seen = len(person.seen)
            road.open()
            await until(lambda: re.search(rb"\x1b\[\?104[79]h.*300\r\n", person.seen[seen:], re.DOTALL))
            person.type(b":q!\r")
            await until(lambda: person.seen.rfind(b"\x1b[?1049l") > seen)
            person.type(b"exit\r")
            assert await person.finish() == 0


async def test_nothing_is_lost_or_doubled_when_the_gateway_is_killed(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("s1", "ada")
        cast = tmp_path / "s1.cast"
        recording = asyncio.create_task(run(gateway, "record", "s1", "-o", str(cast)))
        async with at_terminal("attach", "s1", "--user", "ada", env=environment(gateway)) as person:
            await person.until(PROMPT)
            await until(lambda: cast.exists() and PROMPT in cast.read_bytes())
            person.type(b"for n in $(seq 1 600); do echo line $n; sleep 0.01; done; echo fini''shed\r")
            await person.until(b"line 50\r\n")
            await gateway.restart(kill=True)
            await until(lambda: b"finished" in person.seen)
            person.type(b"exit 4\r")
            assert await person.finish() == 4
        code, _, _ = await recording
    assert code == 0
    played = "".join(text for _, kind, text in map(json.loads, cast.read_text().splitlines()[1:]) if kind == "o")
    for seen in (person.seen.decode(errors="replace"), played):
        numbers = [int(n) for n in re.findall(r"line (\d+)\r\n", seen)]
        if "\x1b[2J" not in seen.split("line 1\r\n")[1] and "\x1bc" not in seen:  # it was back before anybody noticed
            assert numbers == list(range(1, 601))
        else:  # painted again: the screen and what it remembers
            assert sorted(set(numbers)) == list(range(1, 601))


async def test_scripts_run_commands_and_terminals_are_listed(gateway: Gateway) -> None:
    await gateway.create("script", "ada")
    _, _, err = await run(gateway, "terminals", "script")
    assert "no terminals yet" in err
    typed = b"echo one''two\nsleep 0.5; (exit 6)\n"
    code, out, err = await run(gateway, "attach", "script", "--name", "ci", typed=typed)
    assert (code, err) == (6, "")
    assert b"onetwo\r\n" in out
    code, out, _ = await run(gateway, "terminals", "script")
    assert code == 0
    assert re.search(r"^ci +\d+x\d+ +0 +\d+s +ended, exit code 6", out.decode(), re.MULTILINE)
    code, out, _ = await run(gateway, "attach", "script", "--name", "ci", typed=b"echo agai''n; kill -9 $$\n")
    assert code == 128 + signal.SIGKILL
    assert b"again\r\n" in out


async def test_what_the_ring_has_can_be_recorded_afterwards(gateway: Gateway, tmp_path: Path) -> None:
    await gateway.create("ring", "ada")
    cast = tmp_path / "ring.cast"
    await run(gateway, "attach", "ring", typed=b"echo fir''st\necho seco''nd\n")
    code, _, err = await run(gateway, "record", "ring", "--from-ring", "-o", str(cast))
    assert code == 0
    assert "ended, exit code 0" in err
    header, *events = map(json.loads, cast.read_text().splitlines())
    assert header["version"] == 2
    played = "".join(text for _, kind, text in events if kind == "o")
    assert "first\r\n" in played
    assert "second\r\n" in played
    assert {at for at, _, _ in events} == {0}


async def test_a_session_that_is_put_to_sleep_is_told_and_typing_wakes_it(gateway: Gateway) -> None:
    await gateway.create("sleepy", "ada")
    async with at_terminal("attach", "sleepy", "--user", "ada", env=environment(gateway)) as person:
        await person.until(PROMPT)
        async with gateway.http(gateway.bearer("ada")) as ada:
            (await ada.post("/api/sandboxes/sleepy/sleep")).raise_for_status()
        await person.until(b"asleep: type to wake it")
        person.type(b"echo $((6*7))up; exit\r")
        await person.until(b"42up")
        assert await person.finish() == 0
    async with gateway.http(gateway.bearer("ada")) as ada:
        (await ada.post("/api/sandboxes/sleepy/pause")).raise_for_status()
    code, _, err = await run(gateway, "attach", "sleepy")
    assert code == 1
    assert "is paused: resume it first" in err
