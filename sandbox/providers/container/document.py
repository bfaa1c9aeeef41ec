"""What a container is made of: the document that the engine gets. Pure. The boundary is exactly this document.

Inside there are: the image's own files, read-only; the kit that brings the bridge, read-only; the kept roots; the
bridge's own notes; a door that is gone once the bridge runs; an empty /tmp of bounded size. There is no network but an
own loopback, no capability, no way to gain one. Nothing in the document is a secret: an engine writes it to its disk
and shows it to whoever asks.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox.ports.resources import ResourceLimits
from sandbox.providers.bridge_config import InnerPaths

KIT, DOOR, KEPT, STATE = "/holdfast-kit", "/holdfast-door", "/session", "/holdfast"
WORKSPACE, AGENT = "/workspace", "/agent"
LABEL = "dev.holdfast."
_SHM_BYTES = 64 << 20
# A list of ours replaces the engine's own, so it holds what engines mask, and what tells of the host in /sys. Control
# groups stay readable: runtimes size themselves by their own.
_MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg"),
    *(
        "/proc/latency_stats",
        "/proc/pressure",
        "/proc/sched_debug",
        "/proc/scsi",
        "/proc/timer_list",
        "/proc/timer_stats",
    ),
    *("/sys/block", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices/virtual/powercap", "/sys/firmware"),
    *("/sys/hypervisor", "/sys/kernel", "/sys/module", "/sys/power"),
)
# Variables of an image that would change the loader or the Python of the bridge.
_SILENCED = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The limits of one container. The engine reports those that it cannot enforce."""

    memory_bytes: int = 4 << 30
    cpus: float = 2.0
    processes: int = 1024
    tmp_bytes: int = 1 << 30
    open_files: int = 8192
    file_bytes: int = 16 << 30

    def with_those_of(self, asked: ResourceLimits) -> "ContainerLimits":
        """The requested limits replace those that every container gets."""
        return replace(
            self,
            memory_bytes=self.memory_bytes if asked.memory is None else asked.memory,
            cpus=self.cpus if asked.cpus is None else asked.cpus,
            processes=self.processes if asked.pids is None else asked.pids,
        )

    @property
    def of_the_whole(self) -> ResourceLimits:
        return ResourceLimits(self.memory_bytes, self.cpus, self.processes)

    @property
    def rlimits(self) -> dict[str, int]:
        """Of each process. Not of a user's processes: one uid is in many containers."""
        return {"RLIMIT_NOFILE": self.open_files, "RLIMIT_FSIZE": self.file_bytes, "RLIMIT_CORE": 0}

    @property
    def tmp(self) -> int:
        """Files in memory count as memory: a full /tmp alone may not use it up."""
        return min(self.tmp_bytes, self.memory_bytes // 4)


@dataclass(frozen=True, slots=True)
class Bind:
    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    session_id: str
    labels: Mapping[str, str]  # by which it is found
    incarnation: int
    image: str  # its id: a name may mean another one tomorrow
    image_env: Mapping[str, str]
    kit: str  # its name
    start_line: Sequence[str]
    user: str
    binds: Sequence[Bind]
    door_seconds: float
    limits: ContainerLimits = field(default_factory=ContainerLimits)
    runtime: str | None = None


def container_name(installation: str, home: str, session_id: str) -> str:
    """There can be one container of a name: the engine sees to it that a session has no two on the roots of one data
    directory, `home`."""
    named = session_id if home == installation else f"{home}/{session_id}"
    return f"holdfast-{installation}-{hashlib.sha256(named.encode()).hexdigest()[:16]}"


def labels(installation: str, home: str = "", session_id: str = "") -> dict[str, str]:
    """The labels by which the containers of an installation are found, with each one's own facts."""
    own = {f"{LABEL}home": home, f"{LABEL}session": session_id} if home else {}
    return {f"{LABEL}installation": installation, **own}


def home_of(found: Mapping[str, Any]) -> str:
    """The data directory whose roots a container has. Those of earlier gateways say only the installation, which was
    the directory's own."""
    return label(found, "home") or label(found, "installation")


def label(found: Mapping[str, Any], name: str) -> str:
    """The value of one of our labels on a container, as /containers/json has it; "" if there is none."""
    every = found.get("Labels")
    value = every.get(LABEL + name) if isinstance(every, dict) else None
    return value if isinstance(value, str) else ""


def inner_paths() -> InnerPaths:
    """Directories by their names inside. Programs see the two roots as separate mounts; the bridge has both in one
    mount, so that a restored tree replaces them in one step."""
    return InnerPaths(KEPT, WORKSPACE, AGENT, STATE, f"{KIT}/packages")


def container(plan: ContainerPlan) -> dict[str, Any]:
    limits = plan.limits
    said = {f"{LABEL}incarnation": str(plan.incarnation), f"{LABEL}kit": plan.kit}
    door = f"{KIT}/packages/sandbox/providers/container/door.py"
    started = [*plan.start_line, "-I", "-S", door, f"{DOOR}/door", f"{plan.door_seconds:g}", json.dumps(limits.rlimits)]
    return {
        "Image": plan.image,
        "Entrypoint": started,
        "Cmd": [],
        "Env": [f"{name}=" for name in _silenced(plan.image_env)],
        "User": plan.user,
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "StopSignal": "SIGTERM",
        "NetworkDisabled": True,
        "OpenStdin": False,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {**plan.labels, **said},
        "HostConfig": {
            "NetworkMode": "none",
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "MaskedPaths": list(_MASKED),
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,
            "NanoCpus": int(limits.cpus * 1e9),
            "PidsLimit": limits.processes,
            "OomScoreAdj": 500,  # sooner than the host's own
            "ShmSize": min(_SHM_BYTES, limits.tmp),
            "LogConfig": {"Type": "none"},
            "RestartPolicy": {"Name": "no"},
            "AutoRemove": False,  # the reason of its end is read afterwards
            "Mounts": [*map(_mount, plan.binds), _tmpfs(limits.tmp)],
            **({"Runtime": plan.runtime} if plan.runtime else {}),
        },
    }


def _silenced(image_env: Iterable[str]) -> list[str]:
    loaders = {name for name in image_env if name.startswith("LD_") or name == "GLIBC_TUNABLES"}
    return sorted({*_SILENCED, *loaders})


def _mount(bind: Bind) -> dict[str, Any]:
    return {"Type": "bind", "Source": bind.source, "Target": bind.target, "ReadOnly": not bind.writable}


def _tmpfs(size: int) -> dict[str, Any]:
    return {"Type": "tmpfs", "Target": "/tmp", "TmpfsOptions": {"SizeBytes": size, "Mode": 0o1777}}
