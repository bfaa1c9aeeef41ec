"""`holdfast record` as a real process: what it writes can be played, at every moment."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.at_terminal import PATIENCE_SECONDS, at_terminal
from tests.support.launcher import Launched, launch
from tests.support.native_terminal import NativeGateway, Road
from tests.support.waiting import until, whole_lines

Process = Launched


@pytest.fixture
async def gateway() -> AsyncIterator[NativeGateway]:
    async with NativeGateway() as gateway:
        yield gateway


@pytest.fixture
async def road(gateway: NativeGateway) -> AsyncIterator[Road]:
    async with Road(gateway.port) as road:
        yield road


class Told:
    """What a command said on stderr; `code` is its exit code."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.words = ""


@asynccontextmanager
async def recording(road: Road, tmp_path: Path, *words: str) -> AsyncIterator[tuple[Launched, Told]]:
    """A command that records; leaving waits for its end."""
    told = Told()
    environment = {"PATH": os.environ["PATH"], "HOLDFAST_DATA_DIR": str(tmp_path / "data")}
    process = await launch(
        "record", "s1", "--url", f"http://127.0.0.1:{road.port}", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    try:
        yield process, told
        async with asyncio.timeout(PATIENCE_SECONDS):
            _, err = await process.communicate()
        told.code, told.words = process.returncode, err.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def played(file: Path, *, orderly: bool = True) -> tuple[dict[str, Any], list[Any]]:
    """Header and events of a recording that has ended. Unless it ended in order, its last line may be torn: the kernel
    may stop inside a write."""
    assert not orderly or file.read_bytes().endswith(b"\n")
    header, *events = map(json.loads, whole_lines(file))
    assert header["version"] == 2
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    return header, events


def output(file: Path) -> str:
    """What was shown, as far as it is written; also while it goes on."""
    return "".join(text for _, kind, text in map(json.loads, whole_lines(file)[1:]) if kind == "o")


async def watched(gateway: NativeGateway) -> None:
    await until(lambda: gateway.viewers and b"$ " in gateway.main.written)


async def test_what_happens_is_recorded_until_the_program_ends(
    gateway: NativeGateway, road: Road, tmp_path: Path
) -> None:
    file = tmp_path / "x.cast"
    async with recording(road, tmp_path, "-o", str(file), "--idle-time-limit", "2") as (_, told):
        await watched(gateway)
        await gateway.main.type("echo grö''ße 中文\r".encode())
        await until(lambda: "größe 中文\r\n" in output(file), "the recording has it")
        gateway.main.resize(100, 40)
        await gateway.main.type(b"exit 3\r")
    assert told.code == 0
    assert "ended, exit code 3" in told.words
    header, events = played(file)
    assert (header["width"], header["height"], header["idle_time_limit"]) == (80, 24, 2)
    assert header["env"] == {"TERM": "xterm-256color"}
    assert ["r", "100x40"] in [event[1:] for event in events]
    assert output(file).encode() == gateway.main.written
    assert gateway.asked[0]["role"] == "view"
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_recording_begins_with_the_screen_or_with_all_that_is_left_of_it(
    gateway: NativeGateway, road: Road, tmp_path: Path
) -> None:
    live, ring = tmp_path / "live.cast", tmp_path / "ring.cast"
    async with recording(road, tmp_path, "-o", str(live)) as (_, told):
        await watched(gateway)
        await gateway.main.type("echo é-be''fore\r".encode())
        await until(lambda: b"-before\r\n" in gateway.main.written)
        gateway.main.forget(gateway.main.written.index("é-before".encode()) + 1)  # the ring begins inside a character
        async with recording(road, tmp_path, "-o", str(ring), "--from-ring") as (_, told_ring):
            await until(lambda: len(gateway.viewers) == 2)
            await gateway.main.type(b"echo aft''er; exit\r")
    assert (told.code, told_ring.code) == (0, 0)
    assert gateway.asked[1]["offset"] == str(gateway.main.base)
    _, events = played(ring)
    assert events[0][0] == 0
    assert events[0][2].startswith("-before\r\n"), "no half character"
    assert output(ring).encode() == gateway.main.written[1:]
    assert "after\r\n" in output(live)


async def test_a_recording_goes_on_over_cuts_and_says_where_something_is_missing(
    gateway: NativeGateway, road: Road, tmp_path: Path
) -> None:
    file = tmp_path / "x.cast"
    async with recording(road, tmp_path, "-o", str(file)) as (_, told):
        await watched(gateway)
        await gateway.main.type(b"for n in $(seq 1 300); do echo line $n; sleep 0.005; done\r")
        for line in (50, 100, 150, 200):
            await until(partial(gateway.main.wrote, b"line %d\r\n" % line))
            road.cut()
        await until(lambda: "line 300\r\n" in output(file), "the recording has it all")
        numbers = [int(n) for n in re.findall(r"line (\d+)\r\n", output(file))]
        assert numbers == list(range(1, 301)), "each once, in order"
        road.close()
        await until(lambda: not gateway.viewers)
        await gateway.main.type(b"echo mis''sed\r")
        await until(lambda: b"missed\r\n" in gateway.main.written)
        gateway.main.forget(len(gateway.main.written) - 4)
        road.open()
        await until(lambda: gateway.viewers)
        await gateway.main.type(b"exit\r")
    assert told.code == 0
    assert "missed" not in output(file)
    assert output(file).count("\x1bc") == 1, "where something is missing the screen begins anew"
    assert "trying again" in told.words


async def test_it_ends_in_order_on_ctrl_c_and_after_a_time(gateway: NativeGateway, road: Road, tmp_path: Path) -> None:
    first, second = tmp_path / "1.cast", tmp_path / "2.cast"
    async with recording(road, tmp_path, "-o", str(first)) as (process, told):
        await watched(gateway)
        await until(lambda: "$ " in output(first), "the recording has the prompt")
        process.send_signal(signal.SIGINT)
    assert told.code == 0
    assert str(first) in told.words
    assert "Traceback" not in told.words
    async with recording(road, tmp_path, "-o", str(second), "--for", "1") as (_, told):
        pass
    assert told.code == 0
    played(second)
    assert "$ " in output(second)


async def test_a_killed_recording_can_be_played(gateway: NativeGateway, road: Road, tmp_path: Path) -> None:
    file = tmp_path / "x.cast"
    async with recording(road, tmp_path, "-o", str(file)) as (process, _):
        await watched(gateway)
        await gateway.main.type(b"yes 'a line of some length, for there to be something in it'\r")
        await until(lambda: file.stat().st_size > 1 << 20, "a long recording")
        process.kill()
    _, events = played(file, orderly=False)
    assert len(events) > 1


async def test_a_pipe_gets_it_too(gateway: NativeGateway, road: Road, tmp_path: Path) -> None:
    async with recording(road, tmp_path) as (process, told):
        assert process.stdout is not None
        header = json.loads(await process.stdout.readline())
        assert header["width"] == 80
        await watched(gateway)
        await gateway.main.type(b"exit\r")
    assert told.code == 0
    async with at_terminal(
        "record", "s1", "--url", f"http://127.0.0.1:{road.port}",
        env={"PATH": os.environ["PATH"], "HOLDFAST_DATA_DIR": str(tmp_path / "data")},
    ) as person:  # fmt: skip
        assert await person.finish() == 1
        await person.until(b"stdout is a terminal")


async def test_nothing_is_written_over_and_nothing_left_that_is_no_recording(
    gateway: NativeGateway, road: Road, tmp_path: Path
) -> None:
    kept, asleep = tmp_path / "kept.cast", tmp_path / "asleep.cast"
    kept.write_text("precious")
    async with recording(road, tmp_path, "-o", str(kept)) as (_, told):
        pass
    assert told.code == 1
    assert "exists" in told.words
    assert kept.read_text() == "precious"
    gateway.status = "sleeping"
    async with recording(road, tmp_path, "-o", str(asleep)) as (process, told):
        await until(lambda: gateway.waiting)
        process.send_signal(signal.SIGTERM)
    assert told.code == 0
    assert not asleep.exists()
    async with recording(road, tmp_path, "-o", str(tmp_path / "no" / "where.cast")) as (_, told):
        pass
    assert told.code == 1
    assert "cannot write" in told.words


async def test_a_recording_waits_for_somebody_to_wake_the_session(
    gateway: NativeGateway, road: Road, tmp_path: Path
) -> None:
    file = tmp_path / "x.cast"
    gateway.status = "sleeping"
    async with recording(road, tmp_path, "-o", str(file)) as (_, told):
        await until(lambda: gateway.waiting)
        await gateway.wake()
        await gateway.main.type(b"exit\r")
    assert told.code == 0
    assert told.words.count("asleep") == 1
    assert "exit" in output(file)
