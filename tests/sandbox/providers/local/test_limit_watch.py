"""What is told of ends by a limit, with the counts of a group in plain files."""

from pathlib import Path

import pytest

from sandbox.ports.resources import ResourceLimits
from sandbox.ports.sandbox import CommandResult
from sandbox.protocol.values import AgentExit
from sandbox.providers.cgroups.groups import Group
from sandbox.providers.local.limit_watch import LimitWatch
from tests.support.bridge import Owner

MIB = 1 << 20
WORDS = "the sandbox's memory limit of 512 MiB was reached; HOLDFAST_LIMIT_MEMORY"


class Counts:
    """A group of the second version."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.group = Group(2, dict.fromkeys(("memory", "pids", "cpu"), str(directory)))
        for name, text in {"memory.max": str(512 * MIB), "pids.max": "100", "cgroup.procs": "1\n"}.items():
            (directory / name).write_text(text)
        self.count(0, 0)

    def count(self, killed: int, refused: int) -> None:
        (self.directory / "memory.events").write_text(f"oom_kill {killed}\n")
        (self.directory / "pids.events").write_text(f"max {refused}\n")


@pytest.fixture
def counts(tmp_path: Path) -> Counts:
    return Counts(tmp_path)


@pytest.fixture
def met() -> list[str]:
    return []


@pytest.fixture
def watch(met: list[str]) -> LimitWatch:
    return LimitWatch(ResourceLimits(memory=512 * MIB, pids=100), met.append)


def exited(code: int | None, signal: str | None = None) -> AgentExit:
    return AgentExit("e", 1, 0, code, signal, f"killed by {signal}" if signal else f"exited with code {code}")


def test_each_end_is_told_for_what_was_counted_since_the_last(
    watch: LimitWatch, counts: Counts, met: list[str]
) -> None:
    owner = Owner()
    events = watch.watched("s", counts.group, owner)
    events.on_exit(exited(None, "SIGKILL"))
    counts.count(2, 0)
    events.on_exit(exited(None, "SIGKILL"))
    events.on_exit(exited(None, "SIGKILL"))
    counts.count(3, 0)
    events.on_exit(exited(137))
    counts.count(4, 0)
    events.on_exit(exited(0))
    events.on_exit(exited(1))
    counts.count(4, 1)
    events.on_exit(exited(1))
    assert [exit.reason for exit in owner.exits] == [
        "killed by SIGKILL",
        f"the program was killed because {WORDS}",
        "killed by SIGKILL",
        f"the program was killed because {WORDS}",
        "exited with code 0",
        f"exited with code 1; {WORDS}",
        "exited with code 1; the sandbox's limit of 100 processes and threads was reached; HOLDFAST_LIMIT_PIDS",
    ]
    assert met == ["memory", "memory", "memory", "pids"]


def test_a_new_sandbox_begins_to_count_anew(watch: LimitWatch, counts: Counts) -> None:
    owner = Owner()
    counts.count(5, 0)
    watch.watched("s", counts.group, owner).on_exit(exited(None, "SIGKILL"))
    watch.begin("s")
    counts.count(1, 0)
    watch.watched("s", counts.group, owner).on_exit(exited(None, "SIGKILL"))
    assert [exit.reason for exit in owner.exits] == [f"the program was killed because {WORDS}"] * 2


def test_a_sandbox_that_has_ended_by_its_limit_says_so_and_a_lost_link_alone_does_not(
    watch: LimitWatch, counts: Counts
) -> None:
    owner = Owner()
    events = watch.watched("s", counts.group, owner)
    counts.count(1, 0)
    events.on_lost("the bridge is gone")
    (counts.directory / "cgroup.procs").write_text("")
    events.on_lost("the bridge is gone")
    assert owner.lost == ["the bridge is gone", f"the bridge is gone; {WORDS}"]


def test_a_group_that_is_gone_adds_nothing(watch: LimitWatch, counts: Counts, tmp_path: Path) -> None:
    owner = Owner()
    gone = Group(2, {"memory": str(tmp_path / "gone")})
    watch.watched("s", gone, owner).on_exit(exited(None, "SIGKILL"))
    assert owner.exits[0].reason == "killed by SIGKILL"
    assert watch.watched("s", None, owner) is owner


def test_a_command_that_was_killed_says_so_last(watch: LimitWatch, counts: Counts, met: list[str]) -> None:
    before = counts.group.read()
    killed = CommandResult(137, "out", "err")
    assert watch.of_command(before, counts.group, killed) == killed
    counts.count(1, 0)
    told = watch.of_command(before, counts.group, killed)
    assert (told.exit_code, told.stdout) == (137, "out")
    assert told.stderr == f"err\n[the program was killed because {WORDS}]\n"
    assert watch.of_command(before, counts.group, CommandResult(1, "", "")).stderr == ""
    assert watch.of_command(None, None, killed) == killed
    assert met == ["memory"]
