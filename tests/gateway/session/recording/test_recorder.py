"""What a recording holds of a session, and what it does not."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.session.recording.files import RecordingFiles
from gateway.session.replay import replay
from tests.support.sessions import World
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
