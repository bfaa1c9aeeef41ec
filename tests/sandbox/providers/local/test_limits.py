"""Limits of whole sandboxes on real control groups: they hold, a program is what they end, and it is told why."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import Link
from sandbox.ports.resources import ResourceLimits
from sandbox.ports.sandbox import CommandRefused, CommandResult, SandboxFailed
from sandbox.providers.cgroups import groups
from sandbox.providers.cgroups.groups import Group
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.local.sandbox import group_of
from tests.contract.sandbox import attach
from tests.sandbox.cgroups import NO_GROUPS
from tests.sandbox.local import command, opened, python, spec
from tests.support.bridge import Owner
from tests.support.waiting import until

MIB = 1 << 20
LIMITS = ResourceLimits(256 * MIB, 1.0, 100)
TOLD = "the program was killed because the sandbox's memory limit of 256 MiB was reached; HOLDFAST_LIMIT_MEMORY"
held = pytest.mark.skipif(bool(NO_GROUPS), reason=NO_GROUPS or "-")

ONE_LARGE = "b = bytearray(600 << 20); print(len(b))"
# Each is far smaller than the bridge: without a score of their own it would be the kernel's choice.
MANY_SMALL = """
import os, time
for number in range(70):
    if os.fork() == 0:
        b = bytearray(12 << 20)
        time.sleep(600)
os.wait()
print("one was ended")
"""
FORK_BOMB = """
import os, time
started = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
        started += 1
except OSError as error:
    print(started, error.strerror, flush=True)
"""
FILL = """
import os, sys
for place in ("/tmp/f", "/dev/shm/f"):
    try:
        with open(place, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
    except OSError as error:
        print(error.strerror)
"""
SPIN = """
import time
began, used = time.monotonic(), time.process_time()
while time.process_time() - used < 0.8: pass
print(time.monotonic() - began)
"""


def limited(session_id: str = "s1", agent: Sequence[str] = ("cat",), **wishes: Any) -> SandboxSpec:
    return spec(session_id, agent, limits=LIMITS, **wishes)


def group(fleet: LocalFleet, session_id: str = "s1") -> Group:
    found = group_of(fleet._host.home(session_id))
    assert found is not None
    return found


def is_gone(group: Group) -> bool:
    return not any(directory.exists() for directory in group.directories)


async def run(fleet: LocalFleet, source: str) -> CommandResult:
    return await command(fleet, "s1", python(source))


async def started(fleet: LocalFleet) -> tuple[Owner, Link]:
    """The owner of a link, and the link, by which the agent was started."""
    owner = Owner()
    link = await attach(fleet, owner)
    link.start(None)
    await until(lambda: bool(owner.epochs))
    return owner, link


def bridge_of(fleet: LocalFleet) -> int:
    note = fleet._host.home("s1").read_note()
    assert note is not None
    return note.init_pid


@held
async def test_bombs_meet_the_limits_and_the_bridge_and_neighbours_live(tmp_path: Path) -> None:
    """All in one sandbox: what one bomb leaves must not lame it for the next."""
    met: list[str] = []
    async with opened(tmp_path, "contained", resources=LIMITS, met_limit=met.append) as fleet:
        await fleet.start(limited())
        await fleet.start(limited("neighbour"))
        bridge, neighbour = bridge_of(fleet), group(fleet, "neighbour")
        assert len(group(fleet).members()) >= 3
        resources = await fleet.sandbox("s1").resources()
        assert resources is not None
        assert resources.limits == LIMITS
        assert resources.usage.memory is not None
        assert 0 < resources.usage.memory < 256 * MIB
        assert resources.usage.pids is not None
        assert 3 <= resources.usage.pids <= 100
        assert resources.usage.cpu_seconds

        large = await run(fleet, ONE_LARGE)
        assert (large.exit_code, large.stderr) == (137, f"[{TOLD}]\n")
        assert met == ["memory"]

        many = await run(fleet, MANY_SMALL)
        assert "one was ended" in many.stdout
        killed = group(fleet).read()
        assert killed is not None
        assert killed.killed >= 2

        forks = await run(fleet, FORK_BOMB)
        started, words = forks.stdout.split(" ", 1)
        assert words == "Resource temporarily unavailable\n"
        assert 50 < int(started) < 100

        full = await run(fleet, FILL)
        assert full.stdout == "No space left on device\n" * 2, full
        assert (await run(fleet, "print('still here')")).stdout == "still here\n"

        assert bridge_of(fleet) == bridge
        assert sorted(await fleet.running()) == ["neighbour", "s1"]
        told = neighbour.read()
        assert told is not None
        assert (told.killed, told.refused) == (0, 0)
        assert (await command(fleet, "neighbour", ["echo", "well"])).stdout == "well\n"


@held
async def test_an_agent_that_meets_the_memory_limit_ends_with_the_reason(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained", resources=LIMITS) as fleet:
        await fleet.start(limited(agent=python(ONE_LARGE)))
        owner, _ = await started(fleet)
        await until(lambda: len(owner.exits) == 1)
        assert (owner.exits[0].signal, owner.exits[0].reason) == ("SIGKILL", TOLD)
        assert await fleet.sandbox("s1").runs()


@held
async def test_an_agent_that_could_not_start_a_program_says_at_which_limit(tmp_path: Path) -> None:
    own = ResourceLimits(pids=80)
    async with opened(tmp_path, "contained", resources=LIMITS) as fleet:
        await fleet.start(spec(agent=python(FORK_BOMB + "raise SystemExit(3)"), limits=own))
        owner, _ = await started(fleet)
        await until(lambda: len(owner.exits) == 1)
        words = "the sandbox's limit of 80 processes and threads was reached; the session's own limits.pids"
        assert owner.exits[0].reason == f"exited with code 3; {words}"


@held
async def test_an_end_that_no_limit_made_is_told_as_ever(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained", resources=LIMITS) as fleet:
        await fleet.start(limited(agent=python("import os; os.kill(os.getpid(), 9)")))
        owner, _ = await started(fleet)
        await until(lambda: len(owner.exits) == 1)
        assert owner.exits[0].reason == "killed by SIGKILL"
        assert (await run(fleet, "import os; os.kill(os.getpid(), 9)")).stderr == ""


def share_given(group: Group) -> float:
    """The share of a processor that the kernel allows it."""
    own = Path(group.paths["cpu"])
    if group.version == 2:
        quota, period = (own / "cpu.max").read_text().split()
    else:
        quota, period = ((own / f"cpu.cfs_{word}_us").read_text() for word in ("quota", "period"))
    return int(quota) / int(period)


@held
async def test_a_sandbox_gets_its_share_of_the_processors(tmp_path: Path) -> None:
    """A program that takes all it gets. On a busy machine that is less than the quota, and then nobody has to hold it
    back: the quota itself is read, too."""
    limits = ResourceLimits(cpus=0.25)
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec(limits=limits))
        measured = group(fleet)
        before = measured.read()
        done = await run(fleet, SPIN)
        after = measured.read()
        assert before is not None
        assert after is not None
        assert before.resources.usage.cpu_seconds is not None
        assert after.resources.usage.cpu_seconds is not None
        used = after.resources.usage.cpu_seconds - before.resources.usage.cpu_seconds
        assert used >= 0.8
        assert share_given(measured) == 0.25
        assert 0.8 / float(done.stdout) <= 0.25 * 1.25


@held
async def test_the_group_goes_with_its_sandbox(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(limited())
        first = group(fleet)
        await fleet.sandbox("s1").stop()
        assert is_gone(first)
        assert await fleet.sandbox("s1").resources() is None

        await fleet.start(limited())
        second = group(fleet)
        assert not is_gone(second)
        assert await fleet.sandbox("s1").kill()
        assert is_gone(second)

        await fleet.start(limited())
        await fleet.start(limited())
        third = group(fleet)
        there = [each for directory in third.directories for each in directory.parent.iterdir()]
        siblings = {each.name for each in there if each.is_dir()}
        assert siblings == {directory.name for directory in third.directories}
        await fleet.sandbox("s1").destroy()
        assert is_gone(third)
    assert not any(directory.parent.exists() for directory in third.directories)


GATEWAY = """
import asyncio, sys
from pathlib import Path
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import Link
from sandbox.ports.resources import ResourceLimits
from sandbox.providers.local.fleet import LocalFleet

async def main():
    limits = ResourceLimits(256 << 20, 1.0, 100)
    fleet = LocalFleet(Path(sys.argv[1]), level="contained", resources=limits)
    await fleet.open()
    for name in ("lives", "dies"):
        await fleet.start(SandboxSpec(name, 1, ("cat",), limits=limits))
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@held
async def test_a_sandbox_keeps_its_group_when_the_gateway_is_killed_and_orphans_are_removed(tmp_path: Path) -> None:
    gateway = subprocess.Popen([sys.executable, "-c", GATEWAY, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == b"ready\n"
    finally:
        gateway.kill()
        gateway.communicate()
    fleet = LocalFleet(tmp_path, level="contained", resources=LIMITS)
    lives, dies = group(fleet, "lives"), group(fleet, "dies")
    note = fleet._host.home("dies").read_note()
    assert note is not None
    os.kill(note.init_pid, signal.SIGKILL)
    await until(lambda: not dies.members())
    assert not is_gone(dies)
    # As from a gateway that was killed between a group's making and its note, with what it had started.
    nameless = Path(next(iter(lives.paths.values()))).parent.name.removeprefix("holdfast-")
    stray = groups.find(nameless).make("stray", LIMITS)
    program = subprocess.Popen(["sleep", "600"])
    stray.join([program.pid])
    async with opened(tmp_path, "contained", resources=LIMITS) as again:
        assert await again.running() == ["lives"]
        assert is_gone(dies)
        assert is_gone(stray)
        assert program.wait() == -signal.SIGKILL
        resources = await again.sandbox("lives").resources()
        assert resources is not None
        assert resources.limits == LIMITS
        large = await command(again, "lives", python(ONE_LARGE))
        assert large.stderr == f"[{TOLD}]\n"
    await until(lambda: is_gone(lives))


@held
async def test_two_data_directories_on_one_host_leave_each_others_groups_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with opened(tmp_path / "one", "contained") as fleet:
        await fleet.start(limited())
        async with opened(tmp_path / "other", "contained"):
            assert group(fleet).members()
        assert await fleet.running() == ["s1"]


@held
async def test_without_limits_there_is_no_group(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec())
        assert group_of(fleet._host.home("s1")) is None
        assert await fleet.sandbox("s1").resources() is None


@held
async def test_a_fork_that_the_bridge_cannot_make_is_refused_and_not_its_end(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained", resources=LIMITS) as fleet:
        await fleet.start(limited(agent=python(FORK_BOMB + "time.sleep(600)")))
        owner, link = await started(fleet)
        await until(lambda: bool(owner.lines()))
        with contextlib.suppress(CommandRefused):  # it may come between two of the bomb's
            await run(fleet, "print(1)")
        assert await fleet.sandbox("s1").runs()
        link.kill_agent()
        await until(lambda: len(owner.exits) == 1)
        assert (await run(fleet, "print(1)")).stdout == "1\n"


# A host that cannot.


async def test_limits_that_cannot_be_held_to_are_refused_where_isolation_was_asked_for(
    tmp_path: Path,
) -> None:
    limits = ResourceLimits(memory=256 * MIB, pids=100)
    fleet = LocalFleet(tmp_path, level="contained", resources=limits, control_groups=tmp_path / "none")
    with pytest.raises(SandboxFailed) as refused:
        await fleet.open()
    assert str(refused.value) == (
        "HOLDFAST_LIMIT_MEMORY, HOLDFAST_LIMIT_PIDS cannot be enforced: control groups cannot be used here: "
        f"no controllers are mounted below {tmp_path}/none. Unset the limits to run without them"
    )
    await fleet.close()


@pytest.mark.parametrize("level", ["auto", "trusted"])
async def test_elsewhere_the_operator_is_warned_and_only_a_sessions_own_limits_are_refused(
    level: str, tmp_path: Path
) -> None:
    warnings: list[str] = []
    async with opened(tmp_path, level, resources=LIMITS, warn=warnings.append, control_groups=tmp_path) as fleet:
        reason = "level trusted have no limits" if level == "trusted" else "no controllers are mounted"
        assert any("HOLDFAST_LIMIT_MEMORY" in each and reason in each for each in warnings)
        assert fleet.no_limits is not None
        assert reason in fleet.no_limits
        fleet.check(limited())
        await fleet.start(limited())
        assert await fleet.sandbox("s1").resources() is None
        own = spec(limits=ResourceLimits(memory=128 * MIB, cpus=LIMITS.cpus))
        with pytest.raises(SandboxFailed, match=rf"^limits\.memory cannot be enforced: .*{reason}"):
            fleet.check(own)
        with pytest.raises(SandboxFailed, match=r"^limits\.memory"):
            await fleet.start(own)
