"""The files of a control group: what to write, and how to read them. Pure.

There are two versions. In the first each controller has its own tree, so a sandbox's group is one directory in each;
in the second it is one directory. A file is named by its controller and name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sandbox.ports.resources import ResourceLimits, Resources, ResourceUsage

Version = Literal[1, 2]
CONTROLLERS: dict[Version, tuple[str, ...]] = {1: ("memory", "pids", "cpu", "cpuacct"), 2: ("memory", "pids", "cpu")}
LIMITED_BY = {"memory": "memory", "cpus": "cpu", "pids": "pids"}  # a limit's name: the controller that holds to it
NOTHING_KNOWN = Resources()
_PERIOD = 100_000  # microseconds
_LEAST_QUOTA = 1000  # the kernel's
_UNLIMITED = 1 << 62  # the first version writes this, or more, for no limit
_READ: dict[Version, tuple[tuple[str, str], ...]] = {
    1: (
        ("memory", "memory.limit_in_bytes"),
        ("memory", "memory.usage_in_bytes"),
        ("memory", "memory.oom_control"),
        ("pids", "pids.max"),
        ("pids", "pids.current"),
        ("pids", "pids.events"),
        ("cpu", "cpu.cfs_quota_us"),
        ("cpu", "cpu.cfs_period_us"),
        ("cpuacct", "cpuacct.usage"),
    ),
    2: (
        ("memory", "memory.max"),
        ("memory", "memory.current"),
        ("memory", "memory.events"),
        ("pids", "pids.max"),
        ("pids", "pids.current"),
        ("pids", "pids.events"),
        ("cpu", "cpu.max"),
        ("cpu", "cpu.stat"),
    ),
}


@dataclass(frozen=True, slots=True)
class Setting:
    controller: str
    file: str
    value: str
    optional: bool = False  # not every kernel has it


@dataclass(frozen=True, slots=True)
class Reading:
    """`killed`: programs that the kernel ended because memory ran out; `refused`: forks for which there was no room."""

    resources: Resources = NOTHING_KNOWN
    killed: int = 0
    refused: int = 0


def settings(version: Version, limits: ResourceLimits) -> list[Setting]:
    """The writes that hold a group to `limits`, in their order."""
    found = []
    if limits.memory is not None:
        memory = str(limits.memory)
        if version == 2:
            found += [Setting("memory", "memory.max", memory), Setting("memory", "memory.swap.max", "0", True)]
        else:
            found += [
                Setting("memory", "memory.limit_in_bytes", memory),
                Setting("memory", "memory.memsw.limit_in_bytes", memory, True),
                Setting("memory", "memory.swappiness", "0", True),
            ]
    if limits.pids is not None:
        found.append(Setting("pids", "pids.max", str(limits.pids)))
    if limits.cpus is not None:
        quota = max(round(limits.cpus * _PERIOD), _LEAST_QUOTA)
        if version == 2:
            found.append(Setting("cpu", "cpu.max", f"{quota} {_PERIOD}"))
        else:
            found += [
                Setting("cpu", "cpu.cfs_period_us", str(_PERIOD)),
                Setting("cpu", "cpu.cfs_quota_us", str(quota)),
            ]
    return found


def lacking(limits: ResourceLimits, controllers: frozenset[str]) -> list[str]:
    """The limits that nothing here can hold to."""
    wanted = {name for name in LIMITED_BY if getattr(limits, name) is not None}
    return [name for name, controller in LIMITED_BY.items() if name in wanted and controller not in controllers]


def files_read(version: Version) -> tuple[tuple[str, str], ...]:
    """The (controller, file) pairs that `reading` needs."""
    return _READ[version]


def reading(version: Version, texts: Mapping[str, str]) -> Reading:
    """The limits and the usage in the files, by their names; an unreadable file gives nothing."""
    if version == 2:
        killed, cpus = _keyed(texts.get("memory.events", ""), "oom_kill"), _cpus(texts.get("cpu.max", ""))
        memory, used = _number(texts.get("memory.max")), _number(texts.get("memory.current"))
        spent = _keyed(texts["cpu.stat"], "usage_usec") / 1e6 if "cpu.stat" in texts else None
    else:
        killed = _keyed(texts.get("memory.oom_control", ""), "oom_kill")
        cpus = _cpus(f"{texts.get('cpu.cfs_quota_us', '')} {texts.get('cpu.cfs_period_us', '')}")
        memory, used = _number(texts.get("memory.limit_in_bytes")), _number(texts.get("memory.usage_in_bytes"))
        nanoseconds = _number(texts.get("cpuacct.usage"))
        spent = None if nanoseconds is None else nanoseconds / 1e9
    limits = ResourceLimits(memory, cpus, _number(texts.get("pids.max")))
    usage = ResourceUsage(used, spent, _number(texts.get("pids.current")))
    return Reading(Resources(limits, usage), killed, _keyed(texts.get("pids.events", ""), "max"))


def own_path(membership: str, controller: str) -> str | None:
    """Where /proc/<pid>/cgroup says that a process is, in the tree of `controller`; "" is the second version's."""
    for line in membership.splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller in controllers.split(",") if controller else (number, controllers) == ("0", ""):
            return path
    return None


def words(text: str) -> frozenset[str]:
    """The controllers that a file lists; a plus before one enables it."""
    return frozenset(word.removeprefix("+") for word in text.split())


def limit_met(before: Reading, now: Reading, operator: ResourceLimits) -> tuple[str, str] | None:
    """Which limit has ended a program, or kept one from starting, since `before`: its name, and words for the user.
    `operator`: the limits that settings have given."""
    limits = now.resources.limits
    if now.killed > before.killed and limits.memory is not None:
        whose = _whose("memory", limits.memory, operator.memory)
        return "memory", f"the sandbox's memory limit of {_size(limits.memory)} was reached; {whose}"
    if now.refused > before.refused and limits.pids is not None:
        whose = _whose("pids", limits.pids, operator.pids)
        return "pids", f"the sandbox's limit of {limits.pids} processes and threads was reached; {whose}"
    return None


def _whose(name: str, limit: int, operator: int | None) -> str:
    return f"HOLDFAST_LIMIT_{name.upper()}" if limit == operator else f"the session's own limits.{name}"


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count % (1 << 20) == 0 else f"{count} bytes"


def _number(text: str | None) -> int | None:
    """None for a missing file, and for no limit."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() and int(text) < _UNLIMITED else None


def _cpus(text: str) -> float | None:
    quota, period = [*text.split(), "", ""][:2]
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _keyed(text: str, key: str) -> int:
    found = (line.split() for line in text.splitlines())
    return next((int(line[1]) for line in found if len(line) == 2 and line[0] == key and line[1].isdecimal()), 0)
