"""What a recording holds of a session, and what it does not."""

import asyncio
import gc
import os
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.session.model.state import SessionSpec
from gateway.session.recording.files import RecordingFiles
from gateway.session.recording.recorder import secrets_of
from gateway.session.replay import replay
from persistence.record import Session, Write
from tests.support.sessions import AT_MEMORY, RecordingOutlet, World
from tests.support.virtual_time import VirtualTimeLoop


def recorded(directory: Path, day: Callable[[World], Awaitable[None]]) -> dict[str, bytes]:
    """The recordings of a day, by their names."""
    world = World()
    world.recordings = RecordingFiles(directory)

    async def run() -> None:
        async with world:
            await day(world)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
    world.recordings.close()
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_the_credentials_of_a_repo_url_are_not_recorded_also_when_an_archived_session_comes_back(
    tmp_path: Path,
) -> None:
    first, again = "ghp_ThatItBeganWith", "ghp_ThatItCameBackWith"

    async def day(world: World) -> None:
        actor = await world.create(repo_url=f"https://oauth2:{first}@example.com/x.git")
        tab = await world.welcomed()
        tab.say("hello", "a")
        await tab.until("done")
        await actor.destroy(purge=False)
        await world.create(repo_url=f"https://oauth2:{again}@example.com/x.git")

    (recording,) = recorded(tmp_path, day).values()
    assert b"@example.com/x.git" in recording
    assert first.encode() not in recording
    assert again.encode() not in recording
    done = asyncio.run(replay(recording.splitlines(keepends=True)))
    assert done.difference is None, str(done.difference)


URLS = {
    "https://ann:hunter2@example.com/x.git": {"ann", "hunter2"},
    "https://a%40n%6E:p%2Fs+s@example.com/x": {"a%40n%6E", "a@nn", "p%2Fs+s", "p/s+s", "p/s s"},
    "https://example.com/x.git?private_token=glpat-123&ref=a%20b+c": {"glpat-123", "a%20b+c", "a b+c", "a b c"},
    "https://example.com/x.git?token=a=b;c&&glpat-123&empty=": {"a=b;c", "glpat-123"},
    "git@example.com:ann/x.git": set[str](),
    "https://ann:hunter2@[example.com/x.git": {"https://ann:hunter2@[example.com/x.git"},
}


@pytest.mark.parametrize("url", URLS)
def test_the_secrets_of_a_url_are_its_credentials_and_its_querys_values_as_they_stand_and_decoded(url: str) -> None:
    assert set(secrets_of(SessionSpec(repo_url=url))) == URLS[url]


def test_a_session_that_cannot_be_made_leaves_no_file_and_no_descriptor(tmp_path: Path) -> None:
    async def day(world: World) -> None:
        await world.kept.create(Session("broken", "ann", 0.0, AT_MEMORY))
        await world.kept.commit([Write("broken", checkpoint=b"[1]")])
        before = len(os.listdir("/dev/fd"))
        for _ in range(3):
            with pytest.raises(ValueError, match="unpack"):
                await world.actor("broken")
        assert len(os.listdir("/dev/fd")) == before

    assert recorded(tmp_path, day) == {}


def test_a_recording_that_is_over_keeps_no_viewers_that_left(tmp_path: Path) -> None:
    world = World()
    world.recordings = RecordingFiles(tmp_path, recording_bytes=20_000)
    kept = list[weakref.ref[RecordingOutlet]]()

    async def run() -> None:
        async with world:
            actor = await world.create()
            first = await world.welcomed()
            tabs = [await world.welcomed() for _ in range(3)]
            kept.extend(weakref.ref(tab.outlet) for tab in tabs)
            first.say("x" * 20_000, "long")
            await first.until("done")
            for tab in tabs:
                tab.leave()
            del tab, tabs
            first.say("and more", "more")
            await first.until("done", count=2)
            gc.collect()
            assert [outlet() for outlet in kept] == [None] * 3
            await actor.destroy(purge=False)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
    world.recordings.close()
    (path,) = tmp_path.iterdir()
    assert path.read_bytes().splitlines()[-1].startswith(b'{"stopped":')
