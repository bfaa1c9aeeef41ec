"""The contenders between the browsers of bench/load.py and the stand-in: Holdfast, the usual relay, the floor
program."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import jwt

from bench.load import Target, handshake
from bench.processes import LOAD, UNDER_TEST, WIDE_LIMITS, Program

RELAY, FLOOR = "usual relay", "floor program"
SECRET = "a-secret-that-guards-nothing-but-this-benchmark"
NO_SYNCS = {"HOLDFAST_SYNC_DEBOUNCE": "1h", "HOLDFAST_SYNC_MAX_WAIT": "1h"}
USERS = 128  # a user may have 100 connections


@dataclass(frozen=True, slots=True)
class Contender:
    """A program under test. `home` is the directory of its files."""

    program: Program
    target: Target
    home: Path

    def stored(self) -> int:
        """The number of records in its database."""
        with closing(sqlite3.connect(self.home / "holdfast.db")) as database:
            (count,) = database.execute("SELECT count(*) FROM messages").fetchone()
        return int(count)


class Stage:
    """One run's directory and stand-in. Each contender is a fresh process with a home of its own."""

    def __init__(self, directory: Path, standin: Program) -> None:
        self._directory = directory
        self.standin = standin
        self._homes = 0
        expires = time.time() + 3600
        self._tokens = [
            jwt.encode({"userId": f"u{n}", "email": f"u{n}@example.com", "exp": expires}, SECRET, algorithm="HS256")
            for n in range(USERS)
        ]

    def new_home(self) -> Path:
        self._homes += 1
        home = self._directory / f"{self._homes}"
        home.mkdir()
        return home

    @contextmanager
    def gateway(self, home: Path | None = None, *, syncs: bool = True) -> Iterator[Contender]:
        """Start the whole of Holdfast except its sandboxes. If `home` is given, it continues with the data there.
        Without `syncs`, the syncs that follow an answer are put off until the run is over.
        """
        home = home or self.new_home()
        env = {
            "HOLDFAST_DATA_DIR": str(home),
            "HOLDFAST_PORT": "0",
            "HOLDFAST_JWT_SECRET": SECRET,
            "HOLDFAST_CREATE_ON_ATTACH": "1",
            **WIDE_LIMITS,
            **({} if syncs else NO_SYNCS),
        }
        log = self._directory / "gateway.log"
        with Program("gateway_under_test", self.standin.port, core=UNDER_TEST, log=log, env=env) as program:
            yield Contender(program, Target(program.port, self.ask_holdfast), home)

    def ask_holdfast(self, number: int, resume: str = "") -> bytes:
        """The opening request of a session's owner, with `resume` appended."""
        return handshake(f"/ws/v2?sessionId=s{number}{resume}", self.token(number))

    def token(self, number: int) -> str:
        """The token of that session's owner."""
        return self._tokens[number % USERS]

    @contextmanager
    def relay(self) -> Iterator[Contender]:
        """The usual relay, which stores nothing."""
        with Program("peer", self.standin.port, core=UNDER_TEST, log=self._directory / "peer.log") as program:
            yield Contender(program, Target(program.port, _ask_peer), self._directory)

    @contextmanager
    def floor(self, *, durable: bool = True, package: str = "") -> Iterator[Contender]:
        """The floor program. `package` names the side on which the `websockets` package handles frames."""
        home = self.new_home()
        words = [*(("--database", str(home / "holdfast.db")) if durable else ())]
        words += ["--package", package] if package else []
        log = self._directory / "floor.log"
        with Program("floor", self.standin.port, *words, core=UNDER_TEST, log=log) as program:
            yield Contender(program, Target(program.port, _ask_peer), home)

    def direct(self) -> Target:
        """The stand-in itself."""
        return Target(self.standin.port, lambda number: handshake("/plain", None))


def _ask_peer(number: int) -> bytes:
    return handshake("/ws/v2", None)


@contextmanager
def stage(directory: Path) -> Iterator[Stage]:
    with Program("standin", core=LOAD, log=directory / "standin.log") as standin:
        yield Stage(directory, standin)
