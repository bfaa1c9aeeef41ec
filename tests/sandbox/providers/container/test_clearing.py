"""What containers leave behind, on a real engine: found, heard of, removed. And what is not theirs is let alone."""

import asyncio
import dataclasses
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.providers.container.clearing import Clearing
from sandbox.providers.container.installation import TRIALS
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.left_over import ELSEWHERE_SECONDS
from sandbox.providers.container.note import read_note, write_note
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import find
from tests.contract.sandbox import attach, spec
from tests.sandbox.containers import AnyEngine, _Fleet, named, opened
from tests.support.bridge import Owner
from tests.support.engine import DockerEngine
from tests.support.waiting import until


@pytest.fixture
async def fleet(docker_engine: DockerEngine, tmp_path: Path, kits: Kits) -> AsyncIterator[_Fleet]:
    async with opened(docker_engine, tmp_path, kits) as fleet:
        yield fleet


async def _left(fleet: _Fleet) -> dict[str, str]:
    return {each.session_id: each.why for each in await fleet.leftovers()}


async def test_a_container_that_ended_is_heard_of_found_and_removed(
    any_engine: AnyEngine, tmp_path: Path, kits: Kits
) -> None:
    async with opened(any_engine, tmp_path, kits) as fleet:
        await fleet.start(spec("ends"))
        await fleet.start(spec("stays"))
        heard: list[None] = []

        async def listen() -> None:
            async for ended in fleet.endings():
                heard.append(ended)

        listening = asyncio.create_task(listen())
        await until(lambda: heard, "it listens")
        before = len(heard)
        assert await _left(fleet) == {}
        assert await fleet.sandbox("ends").kill()
        await until(lambda: len(heard) > before, "the end")
        await until(lambda: _left(fleet), "what is left")
        (left,) = await fleet.leftovers()
        assert (left.session_id, left.why) == ("ends", "it has ended")
        assert await fleet.clear(left)
        assert not await fleet.clear(left), "it is gone"
        assert read_note(SandboxHome(tmp_path, "ends")) is None
        assert [each["State"] for each in await fleet.containers.all(stopped=True)] == ["running"]
        await fleet.start(dataclasses.replace(spec("ends"), incarnation=2))
        assert await fleet.running() == ["ends", "stays"]
        listening.cancel()
        await asyncio.wait({listening})


async def test_what_an_engine_calls_ended_is_let_alone_while_its_first_process_runs(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """An engine that lost its containerd says so, and the sandbox goes on."""
    async with opened(docker_engine, tmp_path, kits) as fleet:
        await fleet.start(spec())
        home = SandboxHome(tmp_path, "s1")
        note = read_note(home)
        assert note is not None
        with subprocess.Popen(["sleep", "600"]) as bridge:
            try:
                lives = find(bridge.pid)
                assert lives is not None
                write_note(home, dataclasses.replace(note, pid=lives.pid, started=lives.started))
                assert await fleet.sandbox("s1").kill()
                await fleet.containers.engine.wait(note.container, 60)
                assert await _left(fleet) == {}
            finally:
                bridge.kill()
        assert await _left(fleet) == {"s1": "it has ended"}


async def test_a_start_that_is_under_way_leaves_nothing_over(fleet: _Fleet, tmp_path: Path) -> None:
    """Whatever it has made by then: who clears away waits for its turn, and looks again."""
    starting = asyncio.create_task(fleet.start(spec()))
    while not starting.done():
        for each in await fleet.leftovers():
            assert not await fleet.clear(each)
    await starting
    assert await fleet.running() == ["s1"]
    assert await _left(fleet) == {}


async def test_what_a_killed_trial_left_is_removed_by_any_gateway_when_it_ended_long_ago(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """A doctor has a directory of its own, and is known to no store."""
    async with (
        opened(docker_engine, tmp_path / "trial", kits, propose=named(TRIALS)) as trial,
        opened(docker_engine, tmp_path / "gateway", kits) as gateway,
    ):
        await trial.start(spec("runs"))
        await trial.start(spec("ended"))
        assert await trial.sandbox("ended").kill()
        assert (await _left(gateway), await gateway.running()) == ({}, [])
        later = Clearing(gateway.containers, clock=lambda: time.time() + 2 * ELSEWHERE_SECONDS)
        (left,) = await later.look()
        assert left.session_id == "ended"
        assert await later.clear(left)
        assert await trial.running() == ["runs"]


async def test_what_is_left_of_a_session_that_starts_keeps_the_clearing_of_others_waiting_for_nothing(
    fleet: _Fleet,
) -> None:
    """A start may wait for its image for hours."""
    await fleet.start(spec())
    assert await fleet.sandbox("s1").kill()
    await until(lambda: _left(fleet), "what is left")
    (left,) = await fleet.leftovers()
    async with fleet.containers.host.turn("s1"), asyncio.timeout(60):
        assert not await fleet.clear(left)
    assert await fleet.clear(left)


async def test_a_copy_of_a_data_directory_ends_nothing_of_the_original(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """It has the original's notes, too, which name containers and processes."""
    async with opened(docker_engine, tmp_path / "first", kits, propose=named("house")) as first:
        await first.start(spec())
        shutil.copytree(tmp_path / "first", tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
        async with opened(docker_engine, tmp_path / "copy", kits, propose=named("house")) as copy:
            assert (await copy.running(), await copy.leftovers()) == ([], [])
            assert not await copy.sandbox("s1").runs()
            await copy.sandbox("s1").stop()
            assert read_note(SandboxHome(tmp_path / "copy", "s1")) is None
            assert read_note(SandboxHome(tmp_path / "first", "s1")) is not None
            assert (await first.running(), await first.sandbox("s1").runs()) == (["s1"], True)
            owner = Owner()
            await attach(first, owner)


async def test_of_another_directory_on_the_same_store_only_what_ended_long_ago_is_removed(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    async with (
        opened(docker_engine, tmp_path / "first", kits, propose=named("house")) as first,
        opened(docker_engine, tmp_path / "second", kits, propose=named("house")) as second,
    ):
        await first.start(spec("runs"))
        await first.start(spec("ended"))
        assert await first.sandbox("ended").kill()
        assert await _left(second) == {}
        later = Clearing(second.containers, clock=lambda: time.time() + 2 * ELSEWHERE_SECONDS)
        (left,) = await later.look()
        assert left.session_id == "ended"
        assert await later.clear(left)
        assert await first.running() == ["runs"]


async def test_a_link_goes_on_while_others_are_cleared_away(fleet: _Fleet) -> None:
    await fleet.start(spec("lives"))
    owner = Owner()
    await attach(fleet, owner, session_id="lives")
    await fleet.start(spec("dies"))
    assert await fleet.sandbox("dies").kill()
    assert [await fleet.clear(each) for each in await fleet.leftovers()] == [True]
    assert owner.lost == []
    assert await fleet.running() == ["lives"]
