"""Limits of containers: they hold, a program is what they end, and it is told why."""

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.resources import ResourceLimits
from sandbox.ports.sandbox import CommandResult
from sandbox.providers.cgroups.groups import Group
from sandbox.providers.container.document import ContainerLimits
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.note import read_note
from sandbox.providers.local.layout import SandboxHome
from tests.contract.sandbox import attach, spec
from tests.sandbox.containers import AnyEngine, _Fleet, opened
from tests.sandbox.local import command, python
from tests.sandbox.providers.local.test_limits import FILL, FORK_BOMB, LIMITS, MANY_SMALL, MIB, ONE_LARGE, TOLD
from tests.support.bridge import Owner
from tests.support.engine import DockerEngine
from tests.support.waiting import until

FILE_BYTES = 100 * MIB
ONE_LONG_FILE = """
import os
with open("long", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(1 << 20))
    except OSError as error:
        print(error.strerror, os.fstat(file.fileno()).st_size >> 20)
os.unlink("long")
"""


def group(fleet: _Fleet, session_id: str) -> Group:
    note = read_note(SandboxHome(fleet.data_dir, session_id))
    assert note is not None
    found = Group.of(note.pid)
    assert found is not None
    return found


async def run(fleet: _Fleet, source: str) -> CommandResult:
    return await command(fleet, "s1", python(source))


async def test_bombs_meet_the_limits_and_the_bridge_and_neighbours_live(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    """All in one container: what one bomb leaves must not lame it for the next."""
    met: list[str] = []
    limits = ContainerLimits(file_bytes=FILE_BYTES)
    async with opened(docker_engine, tmp_path, kits, limits=limits, resources=LIMITS, met_limit=met.append) as fleet:
        for session_id in ("s1", "neighbour"):
            await fleet.start(dataclasses.replace(spec(session_id), limits=LIMITS))
        note = read_note(SandboxHome(tmp_path, "s1"))
        neighbour = group(fleet, "neighbour")

        large = await run(fleet, ONE_LARGE)
        assert (large.exit_code, large.stderr) == (137, f"[{TOLD}]\n")
        assert met == ["memory"]

        many = await run(fleet, MANY_SMALL)
        assert "one was ended" in many.stdout
        counted = group(fleet, "s1").read()
        assert counted is not None
        assert counted.killed >= 2

        forks = await run(fleet, FORK_BOMB)
        started, words = forks.stdout.split(" ", 1)
        assert words == "Resource temporarily unavailable\n"
        assert 50 < int(started) < 100

        full = await run(fleet, FILL)
        assert full.stdout == "No space left on device\n" * 2, full
        assert (await run(fleet, ONE_LONG_FILE)).stdout == "File too large 100\n"
        assert (await run(fleet, "print('still here')")).stdout == "still here\n"

        assert read_note(SandboxHome(tmp_path, "s1")) == note
        assert await fleet.running() == ["neighbour", "s1"]
        told = neighbour.read()
        assert told is not None
        assert (told.killed, told.refused) == (0, 0)
        assert (await command(fleet, "neighbour", ["echo", "well"])).stdout == "well\n"


async def test_an_agent_that_meets_a_limit_ends_with_the_reason(
    any_engine: AnyEngine, tmp_path: Path, kits: Kits
) -> None:
    def limited(session_id: str, agent: Sequence[str], limits: ResourceLimits) -> SandboxSpec:
        return dataclasses.replace(spec(session_id), agent=tuple(agent), limits=limits)

    async def reason(session_id: str) -> str:
        owner = Owner()
        link = await attach(fleet, owner, session_id=session_id)
        link.start(None)
        await until(lambda: len(owner.exits) == 1)
        assert await fleet.sandbox(session_id).runs()
        return owner.exits[0].reason

    async with opened(any_engine, tmp_path, kits, resources=LIMITS) as fleet:
        few = ResourceLimits(memory=LIMITS.memory, pids=80)
        await fleet.start(limited("memory", python(ONE_LARGE), LIMITS))
        await fleet.start(limited("pids", python(FORK_BOMB + "raise SystemExit(3)"), few))
        await fleet.start(limited("none", python("import os; os.kill(os.getpid(), 9)"), LIMITS))
        told = await asyncio.gather(*map(reason, ("memory", "pids", "none")))
        words = "the sandbox's limit of 80 processes and threads was reached; the session's own limits.pids"
        assert told == [TOLD, f"exited with code 3; {words}", "killed by SIGKILL"]
