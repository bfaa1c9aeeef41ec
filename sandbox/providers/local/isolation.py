"""The two ways a local sandbox runs: how its processes are started, and what its directories are called inside."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.ports.fleet import AGENTS
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.providers.bridge_config import InnerPaths
from sandbox.providers.local import bubblewrap, seccomp
from sandbox.providers.local.launch import memory_file, spawn
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import MARKER, Process, find
from sandbox.system.interpreter import PYTHON
from sandbox.tree.kept_roots import make_roots

# Numbers of the descriptors in the process that is started.
CONFIG, LISTEN, LOG = 3, 4, 5
_STATUS, _SECCOMP, _PASSWD, _GROUP = 6, 7, 8, 9
# /tmp and /dev/shm may fill up to this part of the memory each: what lies there no kill of a program gives back.
_TMP_SHARE = 4


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one contained sandbox may use."""

    processes: int = 1024
    open_files: int = 8192
    file_bytes: int = 16 * 1024**3
    memory_bytes: int = 8 * 1024**3  # of one process: private writable memory
    tmp_bytes: int = 1024**3  # of /tmp, and again of /dev/shm

    @property
    def rlimits(self) -> dict[str, int]:
        return {
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_DATA": self.memory_bytes,
            "RLIMIT_CORE": 0,
        }


@dataclass(slots=True)
class Started:
    """A bridge process that waits for its configuration, and the first process inside."""

    process: Process
    first: Process
    words: int = -1  # what it says before it has its log; ours to close

    def last_words(self) -> bytes:
        """What was said so far; closes `words`."""
        if self.words < 0:
            return b""
        os.set_blocking(self.words, False)
        with open(self.words, "rb", buffering=0) as pipe:
            self.words = -1
            return pipe.read(4096) or b""


@dataclass(frozen=True, slots=True)
class OneShot:
    """A command to be run once, with the descriptors it inherits under their own numbers."""

    argv: list[str]
    descriptors: tuple[int, ...]


class Level(Protocol):
    name: str
    mounts_roots: bool  # as `Sandbox.mounts_roots`
    own_loopback: bool  # of each sandbox

    def places(self, home: SandboxHome) -> InnerPaths: ...

    def start_bridge(
        self,
        home: SandboxHome,
        env: Mapping[str, str],
        config: int,
        listener: int,
        log: int,
        limits: ResourceLimits = NO_LIMITS,
    ) -> Started:
        """Start a bridge. Who starts it sees to the limits; here files in memory are left room beside programs. Blocks
        briefly; raises OSError."""
        ...

    def one_shot(
        self, kept: Path, network: str, command: Sequence[str], *, roots: bool = True
    ) -> contextlib.AbstractContextManager[OneShot]:
        """A command that runs as the sandbox would, with another `kept` and no notes of a bridge. Without `roots` none
        need be in it."""
        ...


class Trusted:
    """Plain processes of our own user. No isolation: for development on your own code."""

    name = "trusted"
    mounts_roots = False
    own_loopback = False

    def __init__(self, agents: Path | None = None) -> None:
        self._agents = agents

    def places(self, home: SandboxHome) -> InnerPaths:
        code, agents = bubblewrap.package().parent, str(self._agents or "")
        return InnerPaths(str(home.kept), str(home.workspace), str(home.agent), str(home.state), str(code), agents)

    def start_bridge(
        self,
        home: SandboxHome,
        env: Mapping[str, str],
        config: int,
        listener: int,
        log: int,
        limits: ResourceLimits = NO_LIMITS,
    ) -> Started:
        descriptors = {CONFIG: config, LISTEN: listener, LOG: log}
        process = spawn(_bridge({"RLIMIT_CORE": 0}), env, output=log, descriptors=descriptors)
        return Started(process, process)

    @contextlib.contextmanager
    def one_shot(self, kept: Path, network: str, command: Sequence[str], *, roots: bool = True) -> Iterator[OneShot]:
        yield OneShot(list(command), ())


class Contained:
    """Bubblewrap containers."""

    name = "contained"
    mounts_roots = True
    own_loopback = True

    def __init__(
        self,
        bwrap: str,
        data_dir: Path,
        limits: SandboxLimits,
        readable: Sequence[Path] = (),
        agents: Path | None = None,
    ) -> None:
        self._bwrap = bwrap
        self._data = data_dir
        self._limits = limits
        self._readable = tuple(readable)
        self._agents = agents

    def check(self) -> None:
        """Make one container and run our Python in it. Raises NotContained, OSError."""
        with tempfile.TemporaryDirectory(dir=self._data / "run") as made, _files() as files:
            scratch = Path(made)
            make_roots(scratch)
            box = self._box(scratch, scratch, "none", files)
            # Without `site` it is quick, so this is a module that needs no package but ours.
            command = [PYTHON, "-P", "-S", "-c", "import sandbox.system.interpreter"]
            argv = bubblewrap.arguments(self._bwrap, box, command)
            env = {"PATH": bubblewrap.path(), "PYTHONPATH": bubblewrap.CODE}
            bubblewrap.probe(self._bwrap, argv, env, tuple(files.values()))

    def places(self, home: SandboxHome) -> InnerPaths:
        inside, agents = bubblewrap, AGENTS if self._agents else ""
        return InnerPaths(inside.KEPT, inside.WORKSPACE, inside.AGENT, inside.STATE, inside.CODE, agents)

    def start_bridge(
        self,
        home: SandboxHome,
        env: Mapping[str, str],
        config: int,
        listener: int,
        log: int,
        limits: ResourceLimits = NO_LIMITS,
    ) -> Started:
        # Only the bridge, which nobody inside can look into, holds the log. What bwrap holds can be opened from inside
        # through /proc/1/fd, so it gets a pipe that soon has no reader.
        words, words_end = os.pipe()
        status, status_end = os.pipe()
        with _files() as files, open(status, "rb") as told:
            try:
                inside = {number: number for number in files}
                box = self._box(home.kept, home.state, "none", inside, status=_STATUS, memory=limits.memory)
                argv = bubblewrap.arguments(self._bwrap, box, _bridge(self._limits.rlimits))
                descriptors = {CONFIG: config, LISTEN: listener, LOG: log, _STATUS: status_end, **files}
                process = spawn(argv, env, output=words_end, descriptors=descriptors)
            except BaseException:
                os.close(words)
                raise
            finally:
                os.close(status_end)
                os.close(words_end)
            return Started(process, _first_inside(told.readline()) or process, words)

    @contextlib.contextmanager
    def one_shot(self, kept: Path, network: str, command: Sequence[str], *, roots: bool = True) -> Iterator[OneShot]:
        with _files() as files:
            box = self._box(kept, None, network, files, roots=roots, dies_with_us=True)
            yield OneShot(bubblewrap.arguments(self._bwrap, box, command), tuple(files.values()))

    def _box(
        self,
        kept: Path,
        state: Path | None,
        network: str,
        files: Mapping[int, int],
        *,
        roots: bool = True,
        status: int | None = None,
        dies_with_us: bool = False,
        memory: int | None = None,
    ) -> bubblewrap.Box:
        tmp = self._limits.tmp_bytes
        return bubblewrap.Box(
            kept=kept,
            roots=roots,
            state=state,
            network=network,
            hidden=self._data,
            passwd_fd=files[_PASSWD],
            group_fd=files[_GROUP],
            seccomp_fd=files.get(_SECCOMP),
            status_fd=status,
            tmp_bytes=tmp if memory is None else min(tmp, memory // _TMP_SHARE),
            readable=self._readable,
            agents=self._agents,
            dies_with_us=dies_with_us,
        )


def plain_env(home: SandboxHome) -> dict[str, str]:
    """What every process of a sandbox is started with."""
    return {"PATH": bubblewrap.path(), "LANG": "C.UTF-8", "TERM": "xterm-256color", MARKER: home.marker}


@contextlib.contextmanager
def _files() -> Iterator[dict[int, int]]:
    """What bwrap reads from descriptors, by the number each is to have in it."""
    contents = {_PASSWD: bubblewrap.PASSWD, _GROUP: bubblewrap.GROUP, _SECCOMP: seccomp.program()}
    with contextlib.ExitStack() as stack:
        files = {}
        for number, content in contents.items():
            if content is not None:
                files[number] = memory_file("holdfast", content)
                stack.callback(os.close, files[number])
        yield files


def _bridge(rlimits: Mapping[str, int]) -> list[str]:
    # -s: what lies in the agent's home is the agent's, and must not run in the bridge (usercustomize.py).
    python = [PYTHON, "-P", "-s", "-m", "sandbox.providers.local.init"]
    return [*python, json.dumps(rlimits), str(CONFIG), str(LISTEN), str(LOG)]


def _first_inside(status: bytes) -> Process | None:
    """Read the first line of bwrap's status: the process that is number one inside, by its number outside."""
    try:
        return find(int(json.loads(status)["child-pid"]))
    except (ValueError, KeyError, TypeError):
        return None  # bwrap failed and said why in the log
