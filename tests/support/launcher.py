"""Starts gateways quickly: a warm process that has imported everything, and forks for each start.

A gateway that is killed a thousand times cannot spend a second importing each time. The launcher runs as
`python -m tests.support.launcher FD`: it has no loop and no threads, so a fork of it is a clean process. It reads
requests from a socket (a JSON object and two descriptors, for stdout and stderr), forks, and the child runs the real
`holdfast serve` with the environment it was given. What a campaign wants of a child beyond that (die or stop at a
crash point, be a mutant) is named in the request and put in place before serving; the gateway itself reads none of it.

When its socket is closed the launcher ends, and so does every gateway it started.
"""

import asyncio
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

REPOSITORY = Path(__file__).resolve().parents[2]
REQUEST_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Tampering:
    """What is done to one gateway before it serves."""

    crash_at: tuple[str, int] | None = None  # die when this point is reached for the n-th time
    halt_at: tuple[str, int] | None = None  # stop there, as by SIGSTOP, until it is sent SIGCONT
    trace: Path | None = None  # where it writes the name of the point it died or stopped at
    patches: tuple[str, ...] = ()  # names in tests.campaign.mutants, or in tests.campaign.sync.mutants
    file_bytes: int | None = None  # no file may grow beyond: the disk fails


UNTOUCHED = Tampering()


class LauncherFailed(AssertionError):
    """The launcher itself ended."""


class Launched:
    """A gateway process, as `Gateway` knows one."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)  # not reaped before its end is told: the number is still its own

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode


class Launcher:
    """The test's end. `async with Launcher() as launcher: await launcher.start(environment, log)`."""

    async def __aenter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.launcher", str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=REPOSITORY, start_new_session=True,
            )  # fmt: skip
        ours.setblocking(False)
        self._socket = ours
        self._started: asyncio.Queue[int] = asyncio.Queue()
        self._running: dict[int, Launched] = {}
        self._ends: dict[int, int] = {}  # told before its start was heard of
        self._pipes: list[asyncio.ReadTransport] = []
        self._asking = asyncio.Lock()
        self._reader = asyncio.create_task(self._read(), name="launcher")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._socket.close()
        await self._process.wait()
        for pipe in self._pipes:
            pipe.close()

    async def start(self, environment: Mapping[str, str], log: Path, tampering: Tampering = UNTOUCHED) -> Launched:
        """A new gateway process; what it prints is in `stdout`, its log is added to `log`."""
        request = {
            "environment": dict(environment),
            "crash_at": tampering.crash_at,
            "halt_at": tampering.halt_at,
            "trace": str(tampering.trace or os.devnull),
            "patches": tampering.patches,
            "file_bytes": tampering.file_bytes,
        }
        reading, writing = os.pipe()
        logging = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            stdout = asyncio.StreamReader()
            pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(reading, "rb", 0)
            )
            self._pipes = [each for each in self._pipes if not each.is_closing()] + [pipe]
            async with self._asking:
                descriptors = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [writing, logging]))]
                self._socket.sendmsg([json.dumps(request).encode()], descriptors)
                pid = await self._started.get()
        finally:
            os.close(writing)
            os.close(logging)
        if pid < 0:
            raise LauncherFailed(f"it ended with {await self._process.wait()}")
        launched = Launched(pid, stdout)
        self._running[pid] = launched
        if pid in self._ends:
            self._over(pid, self._ends.pop(pid))
        return launched

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while told := await loop.sock_recv(self._socket, REQUEST_BYTES):
            news = json.loads(told)
            if "started" in news:
                self._started.put_nowait(news["started"])
            elif news["ended"] in self._running:
                self._over(news["ended"], news["code"])
            else:
                self._ends[news["ended"]] = news["code"]
        self._started.put_nowait(-1)
        for launched in list(self._running.values()):
            self._over(launched.pid, -signal.SIGKILL)

    def _over(self, pid: int, code: int) -> None:
        launched = self._running.pop(pid)
        launched.returncode = code
        launched.ended.set()


# -- the warm process -------------------------------------------------------------------------------------------------


def main(control: socket.socket) -> None:
    _warm_up()
    children: dict[int, int] = {}  # pidfd -> pid
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd == control.fileno():
                    asked, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES, 2)
                    if not asked:
                        return  # children die with us
                    pid = _fork(control, json.loads(asked), descriptors)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    children[watch := os.pidfd_open(pid)] = pid
                    ready.register(watch, selectors.EVENT_READ)
                    control.send(json.dumps({"started": pid}).encode())
                else:
                    pid = children.pop(key.fd)
                    ready.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    control.send(json.dumps({"ended": pid, "code": code}).encode())


def _warm_up() -> None:
    """Import what a gateway imports, also what it imports only when it needs it."""
    for name in ("gateway.cli.commands.serve", "tests.campaign.sync.mutants", "sandbox.providers.local.fleet"):
        importlib.import_module(name)
    for package in (
        "persistence.http_sink",
        "persistence.postgres",
        "persistence.spool",
        "persistence.sqlite",
        "sync.objects",
    ):
        for adapter in REPOSITORY.joinpath(*package.split(".")).glob("*.py"):
            importlib.import_module(f"{package}.{adapter.stem}")
    gc.collect()
    gc.freeze()


def _fork(control: socket.socket, request: dict[str, Any], descriptors: Sequence[int]) -> int:
    launcher = os.getpid()
    if pid := os.fork():
        return pid
    code = 70
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == launcher:
            code = _serve(request, descriptors)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(request: dict[str, Any], descriptors: Sequence[int]) -> int:
    from gateway.cli.commands.serve import serve
    from gateway.config.settings import load_settings

    os.setsid()
    for target, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, target)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(request["environment"])
    _tamper(request)
    return serve(load_settings(os.environ))


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
