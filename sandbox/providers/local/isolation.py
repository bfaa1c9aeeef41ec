"""The two levels of a local sandbox: how each starts processes, and which paths the directories have inside."""

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

# Numbers of the descriptors in the started process.
CONFIG, LISTEN, LOG = 3, 4, 5
_STATUS, _SECCOMP, _PASSWD, _GROUP = 6, 7, 8, 9
# /tmp and /dev/shm may each fill 1/_TMP_SHARE of the memory limit: killing a program does not free what is there.
_TMP_SHARE = 4


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one contained sandbox may use."""

    processes: int = 1024
    open_files: int = 8192
    file_bytes: int = 16 * 1024**3
    memory_bytes: int = 8 * 1024**3  # private writable memory of one process
    tmp_bytes: int = 1024**3  # of /tmp, and the same of /dev/shm

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
    words: int = -1  # a pipe with its output before it has its log; we must close it

    def last_words(self) -> bytes:
        """Read the output so far and close `words`."""
        if self.words < 0:
            return b""
        os.set_blocking(self.words, False)
        with open(self.words, "rb", buffering=0) as pipe:
            self.words = -1
            return pipe.read(4096) or b""


@dataclass(frozen=True, slots=True)
class OneShot:
    """A command to run once, and the descriptors that it inherits under the same numbers."""

    argv: list[str]
    descriptors: tuple[int, ...]


class Level(Protocol):
    name: str
    mounts_roots: bool  # as `Sandbox.mounts_roots`
    own_loopback: bool  # each sandbox has its own loopback

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
        """Start a bridge. The caller enforces `limits`; here they only bound files in memory, so that programs have
        room. Blocks briefly. Raises OSError."""
        ...

    def one_shot(
        self, kept: Path, network: str, command: Sequence[str], *, roots: bool = True
    ) -> contextlib.AbstractContextManager[OneShot]:
        """A command that runs like the sandbox, with another `kept` and without a bridge's notes. Without `roots`,
        `kept` need not contain the roots."""
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
            # Without `site` Python starts fast, so import a module that needs no package but ours.
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
        # Only the bridge holds the log: no process inside can look into the bridge. Programs inside can open bwrap's
        # descriptors through /proc/1/fd, so bwrap gets a pipe that soon has no reader.
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
    """The environment that every process of a sandbox starts with."""
    return {"PATH": bubblewrap.path(), "LANG": "C.UTF-8", "TERM": "xterm-256color", MARKER: home.marker}


@contextlib.contextmanager
def _files() -> Iterator[dict[int, int]]:
    """Descriptors of the files that bwrap reads, by the number that each has in bwrap."""
    contents = {_PASSWD: bubblewrap.PASSWD, _GROUP: bubblewrap.GROUP, _SECCOMP: seccomp.program()}
    with contextlib.ExitStack() as stack:
        files = {}
        for number, content in contents.items():
            if content is not None:
                files[number] = memory_file("holdfast", content)
                stack.callback(os.close, files[number])
        yield files


def _bridge(rlimits: Mapping[str, int]) -> list[str]:
    # -s: files in the agent's home belong to the agent and must not run in the bridge (usercustomize.py).
    python = [PYTHON, "-P", "-s", "-m", "sandbox.providers.local.init"]
    return [*python, json.dumps(rlimits), str(CONFIG), str(LISTEN), str(LOG)]


def _first_inside(status: bytes) -> Process | None:
    """The process with pid 1 inside, from the first line of bwrap's status, which has its pid outside."""
    try:
        return find(int(json.loads(status)["child-pid"]))
    except (ValueError, KeyError, TypeError):
        return None  # bwrap failed and said why in the log
