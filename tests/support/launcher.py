"""Starts `holdfast` quickly: a warm process that has imported everything, and forks for each start.

A gateway that is killed a thousand times cannot spend a second importing each time, and no more can the commands of a
hundred tests. The warm process runs as `python -m tests.support.launcher FD`: it has no loop and no threads, so a fork
of it is a clean process. It reads requests from a socket (a JSON object and four descriptors: stdin, stdout, stderr,
and one to tell the process's fate to), forks, and the child runs the real `holdfast` with the words and the environment
it was given. What a campaign wants of a child beyond that (die or stop at a crash point, be a mutant) is named in the
request and put in place before; `holdfast` itself reads none of it.

The plain processes that such a gateway starts bridges in (at level `trusted`) are forks of the warm process as well:
the gateway asks it by a socket that it was left. Nothing else of `sandbox/providers/local` is passed over, and where
tests start bridges themselves, or gateways by the command line, the provider does it all.

There is one warm process for all launchers of a test run. When it ends, so does everything that it started.
"""

import asyncio
import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TextIO

from sandbox.providers.local import init, isolation
from sandbox.providers.local.launch import spawn
from sandbox.providers.local.processes import Process, find
from sandbox.system.interpreter import PYTHON

REPOSITORY = Path(__file__).resolve().parents[2]
REQUEST_BYTES = 1 << 16
LINE_BYTES = 64 << 10  # as in asyncio
LEFT_OPEN, MOST_OPEN = 900, 1 << 20  # descriptors that a gateway inherits are at the first number and above
MOST_DESCRIPTORS = 16
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Tampering:
    """Changes to one gateway before it serves."""

    crash_at: tuple[str, int] | None = None  # die when this point is reached for the n-th time
    halt_at: tuple[str, int] | None = None  # stop there, as by SIGSTOP, until it gets SIGCONT
    trace: Path | None = None  # where it writes the name of the point at which it died or stopped
    patches: tuple[str, ...] = ()  # names in tests.campaign.mutants, or in tests.campaign.sync.mutants
    file_bytes: int | None = None  # no file may grow beyond: the disk fails
    spawns_bridges: bool = False  # by the command line, each with memory of its own


UNTOUCHED = Tampering()


class LauncherFailed(AssertionError):
    """The warm process itself ended."""


class Launched:
    """A forked process, in the form of `asyncio.subprocess.Process`."""

    def __init__(
        self,
        pid: int,
        stdin: asyncio.StreamWriter | None,
        stdout: asyncio.StreamReader | None,
        stderr: asyncio.StreamReader | None,
        fate: asyncio.StreamReader,
    ) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None
        self._ended = asyncio.create_task(self._end(fate), name=f"the end of {pid}")

    async def _end(self, fate: asyncio.StreamReader) -> None:
        told = await fate.read()
        self.returncode = int(told) if told else -signal.SIGKILL  # the warm process ended, and took it along
        if self.stdin is not None:
            self.stdin.close()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    async def wait(self) -> int:
        await asyncio.shield(self._ended)
        assert self.returncode is not None
        return self.returncode

    async def communicate(self, given: bytes | None = None) -> tuple[bytes, bytes]:
        """All that it wrote; `given` is its input."""
        out, err, _ = await asyncio.gather(_all(self.stdout), _all(self.stderr), self._feed(given))
        await self.wait()
        return out, err

    async def _feed(self, given: bytes | None) -> None:
        if self.stdin is not None and not self.stdin.is_closing():
            with suppress(ConnectionError):
                self.stdin.write(given or b"")
                await self.stdin.drain()
            self.stdin.close()


async def _all(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


class _Pipe(asyncio.StreamReaderProtocol):
    def eof_received(self) -> bool:
        super().eof_received()
        return False  # nothing is ever written to it: it closes


class Launcher:
    """The test's end. `async with Launcher() as launcher: await launcher.start(environment, log)`; its processes end
    with it."""

    def __init__(self) -> None:
        self._launched: list[Launched] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for launched in self._launched:
            launched.kill()
            await launched.wait()

    async def start(self, environment: Mapping[str, str], log: Path, tampering: Tampering = UNTOUCHED) -> Launched:
        """A new gateway process; its output is in `stdout`, its log is added to `log`."""
        with log.open("ab") as added:
            launched = await launch(
                "serve", env=environment, stdout=asyncio.subprocess.PIPE, stderr=added.fileno(), tampering=tampering
            )
        self._launched = [each for each in self._launched if each.returncode is None] + [launched]
        return launched


async def launch(
    *words: str,
    env: Mapping[str, str],
    stdin: int = asyncio.subprocess.DEVNULL,
    stdout: int = asyncio.subprocess.DEVNULL,
    stderr: int = asyncio.subprocess.DEVNULL,
    limit: int = LINE_BYTES,
    terminal: bool = False,
    tampering: Tampering = UNTOUCHED,
) -> Launched:
    """`holdfast WORDS` in a process and a session of its own; with `terminal`, its stdin controls that. The three
    streams and `limit` are as for `asyncio.create_subprocess_exec`."""
    request = {
        "words": words,
        "environment": dict(env),
        "terminal": terminal,
        "crash_at": tampering.crash_at,
        "halt_at": tampering.halt_at,
        "trace": str(tampering.trace or os.devnull),
        "patches": tampering.patches,
        "file_bytes": tampering.file_bytes,
        "spawns_bridges": tampering.spawns_bridges or tampering.file_bytes is not None,
    }
    theirs: list[int] = []
    try:
        given = await _writer(stdin, theirs)
        out, err = await _reader(stdout, theirs, limit), await _reader(stderr, theirs, limit)
        fate = await _piped(theirs)
        socket.send_fds(warm_process(), [json.dumps(request).encode()], theirs)
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    if not (told := await fate.readline()):
        raise LauncherFailed("it has ended")
    return Launched(int(told), given, out, err, fate)


async def _reader(wanted: int, theirs: list[int], limit: int) -> asyncio.StreamReader | None:
    """Our end of a `wanted` pipe, if it has one; the process's own end is added to `theirs`."""
    if wanted == asyncio.subprocess.PIPE:
        return await _piped(theirs, limit)
    theirs.append(_own(wanted, theirs))
    return None


async def _writer(wanted: int, theirs: list[int]) -> asyncio.StreamWriter | None:
    if wanted != asyncio.subprocess.PIPE:
        theirs.append(_own(wanted, theirs))
        return None
    reading, writing = os.pipe()
    theirs.append(reading)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(writing, "wb", 0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _piped(theirs: list[int], limit: int = LINE_BYTES) -> asyncio.StreamReader:
    reading, writing = os.pipe()
    theirs.append(writing)
    reader, pipe = asyncio.StreamReader(limit), os.fdopen(reading, "rb", 0)
    try:
        await asyncio.get_running_loop().connect_read_pipe(lambda: _Pipe(reader), pipe)
    except BaseException:
        pipe.close()
        raise
    return reader


def _own(wanted: int, theirs: Sequence[int]) -> int:
    if wanted == asyncio.subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR)
    return os.dup(theirs[1] if wanted == asyncio.subprocess.STDOUT else wanted)


@cache
def warm_process() -> socket.socket:
    """The process that takes the requests. It is started with the first one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.launcher", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=REPOSITORY,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# -- the warm process -------------------------------------------------------------------------------------------------


def main(control: socket.socket) -> None:
    _warm_up()
    of_gateways, asks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asks = socket.socket(fileno=fcntl.fcntl(asks, fcntl.F_DUPFD_CLOEXEC, LEFT_OPEN))
    children: dict[int, tuple[int, int]] = {}  # pidfd -> pid, and whom to tell
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ, partial(_run, asks, os.getpid()))
        ready.register(of_gateways, selectors.EVENT_READ, _run_bridge)
        while True:
            for key, _ in ready.select():
                if isinstance(key.fileobj, socket.socket):
                    asked, descriptors, _, _ = socket.recv_fds(key.fileobj, REQUEST_BYTES, MOST_DESCRIPTORS)
                    if not asked:
                        return  # children die with us
                    *streams, fate = descriptors
                    pid = _fork(key.data, json.loads(asked), streams)
                    for descriptor in streams:
                        os.close(descriptor)
                    children[watch := os.pidfd_open(pid)] = pid, fate
                    ready.register(watch, selectors.EVENT_READ)
                    _tell(fate, pid)
                else:
                    pid, fate = children.pop(key.fd)
                    ready.unregister(key.fd)
                    os.close(key.fd)
                    _tell(fate, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                    os.close(fate)


def _tell(whom: int, number: int) -> None:
    with suppress(BrokenPipeError):  # its test is over
        os.write(whom, b"%d\n" % number)


def _warm_up() -> None:
    """Import what `holdfast` imports, also what it imports only when it needs it."""
    importlib.import_module("tests.campaign.sync.mutants")
    for package in ("gateway", "persistence", "sandbox", "sync"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith(("__main__", "sandbox.bridge.terminals", "sandbox.bridge.transfers")):
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _fork(become: Callable[[dict[str, Any], Sequence[int]], int], request: dict[str, Any], given: Sequence[int]) -> int:
    if pid := os.fork():
        return pid
    code = 70
    try:
        code = become(request, given)
        threading._shutdown()  # type: ignore[attr-defined] # as the interpreter does at its end
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(asks: socket.socket, warm: int, request: dict[str, Any], streams: Sequence[int]) -> int:
    from gateway.cli.main import main

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != warm:
        return 70
    _begin(dict(enumerate(streams)), request["environment"], left=asks.fileno())
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.argv = [str(REPOSITORY / "gateway" / "__main__.py"), *request["words"]]
    _tamper(request)
    if not request["spawns_bridges"]:
        vars(isolation)["spawn"] = partial(_spawn, asks)
    return _code_of(main)


def _begin(descriptors: Mapping[int, int], environment: Mapping[str, str], *, left: int = LEFT_OPEN) -> None:
    """A session with these descriptors and no others."""
    os.setsid()
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 16) for descriptor in descriptors.values()]
    for target, descriptor in zip(descriptors, above, strict=True):
        os.dup2(descriptor, target)
    os.closerange(max(descriptors) + 1, left)
    os.closerange(left + 1, MOST_OPEN)
    sys.stdin = _stream(0, "r", sys.stdin.errors)
    sys.stdout = _stream(1, "w", sys.stdout.errors)
    sys.stderr = _stream(2, "w", sys.stderr.errors)
    os.environ.clear()
    os.environ.update(environment)


def _code_of(main: Callable[[], int | None]) -> int:
    try:
        return main() or 0
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)


def _spawn(
    asks: socket.socket,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    output: int,
    descriptors: Mapping[int, int],
) -> Process:
    """In a gateway, in place of `sandbox.providers.local.launch.spawn`."""
    if argv[:-4] != [PYTHON, "-P", "-s", "-m", "sandbox.providers.local.init"]:
        return spawn(argv, env, output=output, descriptors=descriptors)
    reading, writing = os.pipe()
    with open(reading, "rb") as fate:
        request = {"words": argv[-4:], "environment": dict(env), "targets": [1, 2, *descriptors]}
        socket.send_fds(asks, [json.dumps(request).encode()], [output, output, *descriptors.values(), writing])
        os.close(writing)
        pid = int(fate.readline())
    return find(pid) or Process(pid, 0)


def _run_bridge(request: dict[str, Any], given: Sequence[int]) -> int:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.umask(0o077)  # the gateway's
    _begin({0: nothing, **dict(zip(request["targets"], given, strict=True))}, request["environment"])
    sys.argv = ["init", *request["words"]]
    return _code_of(init.main)


def _stream(descriptor: int, mode: str, errors: str | None) -> TextIO:
    """As the interpreter opens its own."""
    raw = open(descriptor, mode + "b", closefd=False)  # noqa: SIM115 - it stays open
    return TextIOWrapper(raw, errors=errors, line_buffering=descriptor == 2 or raw.isatty())


def _tamper(request: dict[str, Any]) -> None:
    from tests.campaign import mutants
    from tests.campaign.sync import mutants as sync_mutants

    if request["crash_at"] is not None:
        _at(request["crash_at"], _die, request["trace"])
    if request["halt_at"] is not None:
        _at(request["halt_at"], _halt, request["trace"])
    if request["file_bytes"] is not None:
        mutants.limit_files(request["file_bytes"])
    known = {**mutants.PATCHES, **sync_mutants.PATCHES}
    for name in request["patches"]:
        known[name]()


def _at(place: tuple[str, int], fate: Callable[[str, str], None], trace: str) -> None:
    """`fate` strikes when the point is reached for the n-th time."""
    from persistence import crash_points as of_records
    from sync import crash_points as of_workspaces

    (fatal, left), struck = place, False

    def reached(point: str) -> None:
        nonlocal left, struck
        if point == fatal and not struck:
            left -= 1
            struck = left <= 0
            if struck:
                fate(point, trace)

    of_records.reached = of_workspaces.reached = reached


def _die(point: str, trace: str) -> NoReturn:
    _note(point, trace)
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # another thread's signal: this one goes no further
    raise AssertionError("it is dead")


def _halt(point: str, trace: str) -> None:
    _note(point, trace)
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread goes no further, and the others stop, too


def _note(point: str, trace: str) -> None:
    note = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(note, f"{point}\n".encode())
    os.close(note)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
