"""`holdfast attach` as a real process on a real terminal, against a little gateway with real programs."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.at_terminal import PATIENCE_SECONDS, PersonAtTerminal, at_terminal
from tests.support.launcher import launch
from tests.support.native_terminal import NativeGateway, Road
from tests.support.waiting import until

LEAVE = b"\x1d\x1d"


@pytest.fixture
async def gateway() -> AsyncIterator[NativeGateway]:
    async with NativeGateway() as gateway:
        yield gateway


@pytest.fixture
async def road(gateway: NativeGateway) -> AsyncIterator[Road]:
    async with Road(gateway.port) as road:
        yield road


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOLDFAST_DATA_DIR": str(tmp_path / "data"), "TERM": "xterm"}


def words(road: Road, *more: str) -> list[str]:
    return ["attach", "s1", "--url", f"http://127.0.0.1:{road.port}", *more]


def given_back(person: PersonAtTerminal) -> bool:
    """The terminal is as it was: its settings, and what a program may have turned on."""
    last = person.seen[person.seen.rindex(b"\x1b[?9;1000;") :]
    return person.settings == person.before and b"\x1b[?7;25h" in last and b"\x1b[m" in last


async def test_a_person_works_in_a_shell_and_leaves_with_its_exit_code(road: Road, env: dict[str, str]) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        person.type(b"echo it is $((6*7)); stty size\r")
        await person.until(b"it is 42\r\n30 90\r\n")
        person.resize(100, 40)
        person.type(b"while [ \"$(stty size)\" != '40 100' ]; do :; done; echo resi''zed\r")
        await person.until(b"resized\r\n")
        person.type(b"printf '\\033[?1049h\\033[?1000h'; exit 7\r")
        assert await person.finish() == 7
        await person.until(b"ended, exit code 7")
        assert given_back(person)
        assert b"\x1b[?1049l" in person.seen[person.seen.rindex(b"\x1b[?1049h") :], "the alternate screen is left"


async def test_a_signal_that_ends_the_program_is_its_exit_code(road: Road, env: dict[str, str]) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        person.type(b"kill -9 $$\r")
        assert await person.finish() == 128 + 9
        await person.until(b"signal SIGKILL")


async def test_one_leaves_and_comes_back_to_what_goes_on(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        person.type(b"answer=42\r")
        await person.until(b"$ ", times=2)
        person.type(b"\x1d")
        person.type(b"\x1d")
        assert await person.finish() == 0
        await person.until(b"attach s1 --url")
        assert given_back(person)
    assert gateway.main.typed == b"answer=42\r", "the keys that leave are not typed"
    async with at_terminal(*words(road, "--detach-keys", "^P^Q"), env=env) as person:
        await person.until(b"answer=42")
        person.type(LEAVE + b"\recho $answer\r")
        await person.until(b"\r42\r\n")
        person.type(b"\x10\x11")
        assert await person.finish() == 0


async def test_a_connection_that_is_cut_is_resumed_without_a_word(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        person.type(b"for n in $(seq 1 400); do echo line $n; sleep 0.005; done\r")
        for cut in range(1, 6):
            await person.until(b"line %d\r\n" % (cut * 60))
            road.cut()
        await person.until(b"line 400\r\n")
        person.type(b"exit\r")
        assert await person.finish() == 0
    assert [int(n) for n in re.findall(rb"line (\d+)\r\n", person.seen)] == list(range(1, 401)), "each once, in order"
    assert "offset" in gateway.asked[-1]
    assert len(gateway.asked) > 1


async def test_one_is_told_of_a_longer_absence_and_then_sees_the_whole_screen(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        person.type(b"echo be''fore\r")
        await person.until(b"before\r\n")
        road.close()
        await person.until("reconnecting…".encode())
        person.type(b"typed into nothing")
        await person.until(b"\a")
        seen = len(person.seen)
        road.open()
        await until(lambda: b"before" in person.seen[seen:])
        assert "offset" not in gateway.asked[-1]
        person.type(b"exit 3\r")
        assert await person.finish() == 3
    assert b"nothing" not in gateway.main.typed


async def test_one_can_leave_while_there_is_no_connection(road: Road, env: dict[str, str]) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        road.close()
        await person.until("reconnecting…".encode())
        person.type(LEAVE)
        assert await person.finish() == 0
        assert given_back(person)


async def test_old_questions_are_not_answered_and_new_ones_are(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        ask = b"printf '\\033[6n'; IFS= read -rsd R -t 60 x; printf 'got %q\\n' \"$x\"\r"
        person.type(ask)
        await person.until(b"got $'\\E[1;1'")
        typed = len(gateway.main.typed)
        road.stall()
        await gateway.main.type(b"printf 'q\\033[6n\\033[c\\033]11;?\\007q\\n'\r")
        await until(lambda: b"q\r\n" in gateway.main.written)
        road.cut()  # what was on the way is lost: it is sent again, and old then
        await person.until(b"qq\r\n")
        person.type(b"exit\r")
        assert await person.finish() == 0
        answered = gateway.main.typed[typed:]
    assert b"\x1b[1;1R" not in answered
    assert b"\x1b[?62" not in answered


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
async def test_a_signal_gives_the_terminal_back(road: Road, env: dict[str, str], number: signal.Signals) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        person.type(b"printf '\\033[?1049h'; echo o''n\r")
        await person.until(b"on\r\n")
        assert person.settings != person.before
        person.process.send_signal(number)
        assert await person.finish() == 128 + number
        assert given_back(person)
        assert b"Traceback" not in person.seen


async def test_one_who_views_types_nothing_and_has_no_say_in_the_size(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with (
        at_terminal(*words(road), env=env) as driver,
        at_terminal(*words(road, "--view"), env=env, cols=60) as viewer,
    ):
        await driver.until(b"$ ")
        await until(lambda: len(gateway.viewers) == 2)
        viewer.type(b"let me\r")
        driver.type(b"echo see''n; stty size\r")
        await viewer.until(b"seen\r\n30 90\r\n")
        await viewer.until(b"the terminal is 90x30, this one only 60x30")
        viewer.type(b"\x03")
        assert await viewer.finish() == 0
        driver.type(LEAVE)
        assert await driver.finish() == 0
    assert b"let me" not in gateway.main.typed


async def test_one_who_views_an_empty_screen_is_told_its_size_too(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with at_terminal(*words(road), env=env) as driver:
        await driver.until(b"$ ")
        gateway.main.base += len(gateway.main.written)
        gateway.main.written = b""
        async with at_terminal(*words(road, "--view"), env=env, cols=60) as viewer:
            await until(lambda: len(gateway.viewers) == 2)
            driver.type(b"echo see''n\r")
            await viewer.until(b"the terminal is 90x30, this one only 60x30")
            viewer.type(b"\x03")
            assert await viewer.finish() == 0


async def test_typing_wakes_and_is_typed(gateway: NativeGateway, road: Road, env: dict[str, str]) -> None:
    gateway.status = "sleeping"
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"[asleep: type to wake it]")
        assert gateway.status == "sleeping"
        person.type(b"exit\r")
        assert await person.finish() == 0
    assert gateway.main.typed == b"exit\r"


async def test_a_program_that_ended_before_can_be_started_again(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        person.type(b"exit 5\r")
        assert await person.finish() == 5
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"[ended, exit code 5: press Enter to start it again]")
        person.type(b"\r")
        await until(lambda: gateway.main.number == 2)
        await person.until(b"$ ", times=2)
        person.type(b"exit 6\r")
        assert await person.finish() == 6


async def test_a_token_is_renewed_before_it_ends(gateway: NativeGateway, road: Road, env: dict[str, str]) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        gateway.viewers[0].say("auth_expiring", at="2026-01-01T00:00:00Z")
        await until(lambda: gateway.renewed)
        assert gateway.renewed[0].count(".") == 2
        gateway.close(4401)  # too late, as after a long sleep of this machine
        await until(lambda: len(gateway.asked) == 2)
        person.type(b"exit\r")
        assert await person.finish() == 0


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [(1000, 0, b"finished"), (4403, 1, b"forbidden"), (4404, 1, b"no such session")],
)
async def test_a_close_that_is_final_is_told(
    gateway: NativeGateway, road: Road, env: dict[str, str], code: int, exit_code: int, said: bytes
) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        gateway.close(code)
        assert await person.finish() == exit_code
        await person.until(said)
        assert given_back(person)


async def test_trouble_is_told_over_the_screen_which_is_painted_again(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        gateway.viewers[0].say("error", code="input_full", error="too much was \x1b[31mtyped")
        await person.until(b"too much was \\x1b[31mtyped")
        await until(lambda: len(gateway.asked) == 2)
        assert "offset" not in gateway.asked[1]
        person.type(b"exit\r")
        assert await person.finish() == 0


async def run(road: Road, env: dict[str, str], *more: str, typed: bytes = b"") -> tuple[int, bytes, str]:
    pipe = asyncio.subprocess.PIPE
    process = await launch(
        *words(road, *more),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=env,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await process.communicate(typed)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


async def test_a_script_types_lines_and_gets_the_output_and_the_exit_code(road: Road, env: dict[str, str]) -> None:
    typed = b"echo one''two\nuntil [ $((n++)) = 40 ]; do sleep 0.01; done; (exit 6)"
    code, out, err = await run(road, env, "--name", "ci", typed=typed)
    assert code == 6, "the end of the input came while a command ran"
    assert b"\ronetwo\r\n" in out
    assert err == ""


async def test_a_script_does_not_get_what_was_there_before(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    async with at_terminal(*words(road), env=env) as person:
        await person.until(b"$ ")
        person.type(b"echo be''fore\r")
        await person.until(b"before\r\n")
        code, out, _ = await run(road, env, typed=b"echo after\nexit 4\n")
        assert await person.finish() == 4
    assert code == 4
    assert b"before" not in out
    assert b"\rafter\r\n" in out


async def test_a_script_wakes_what_sleeps_and_starts_what_ended(
    gateway: NativeGateway, road: Road, env: dict[str, str]
) -> None:
    gateway.status = "sleeping"
    assert (await run(road, env, typed=b"exit 3\n"))[0] == 3
    code, out, _ = await run(road, env, typed=b"echo agai''n; exit 4\n")
    assert (code, gateway.main.number) == (4, 2)
    assert b"\ragain\r\n" in out


async def test_a_script_can_watch(gateway: NativeGateway, road: Road, env: dict[str, str]) -> None:
    watching = asyncio.create_task(run(road, env, "--view", typed=b"not typed\n"))
    await until(lambda: gateway.viewers)
    await gateway.main.type(b"echo see''n; kill -TERM $$; exit 2\r")
    code, out, _ = await watching
    assert code == 2
    assert b"seen\r\n" in out
    assert b"not typed" not in gateway.main.typed


@pytest.mark.parametrize(
    ("status", "said"), [("paused", "is paused: resume it first"), ("needs_env", "needs its variables again")]
)
async def test_a_session_without_terminals_says_what_to_do(
    gateway: NativeGateway, road: Road, env: dict[str, str], status: str, said: str
) -> None:
    gateway.status = status
    code, _, err = await run(road, env)
    assert code == 1
    assert said in err
    assert "holdfast sessions resume s1" in err


async def test_no_session_and_no_gateway_are_clear_errors(road: Road, env: dict[str, str]) -> None:
    async with at_terminal("attach", "s2", "--url", f"http://127.0.0.1:{road.port}", env=env) as person:
        assert await person.finish() == 1
        await person.until(b"there is no such session")
        await person.until(b"--user")
    async with at_terminal("attach", "s1", "--url", "http://127.0.0.1:9", env=env) as person:
        assert await person.finish() == 1
        await person.until(b"no gateway answers")


async def test_terminals_are_listed(gateway: NativeGateway, road: Road, env: dict[str, str]) -> None:
    async def listed(*more: str) -> tuple[bytes, bytes]:
        pipe = asyncio.subprocess.PIPE
        process = await launch(
            "terminals", "s1", "--url", f"http://127.0.0.1:{gateway.port}", *more,
            stdout=pipe, stderr=pipe, env=env,
        )  # fmt: skip
        out, err = await process.communicate()
        assert process.returncode == 0
        return out, err

    assert b"no terminals yet; the first is made by: " in (await listed())[1]
    assert (await listed("--json"))[0] == b""
    await run(road, env, typed=b"exit 9\n")
    out, _ = await listed()
    rows = [re.split(r"  +", line) for line in out.decode().splitlines()]
    assert rows[0] == ["NAME", "SIZE", "VIEWERS", "IDLE", "STATE", "WHAT"]
    assert rows[1] == ["main", "80x24", "0", "2m", "ended, exit code 9", "bash --norc --noprofile -i"]
    assert b'"epoch": "e1"' in (await listed("--json"))[0]
