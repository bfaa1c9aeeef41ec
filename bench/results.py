"""The results of a run, with place and time: the one JSON shape that the page, its plots and the history are made
from."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.figures import Figure
from bench.processes import CORES, REPOSITORY

BUSY_LOAD = 0.3  # for each core, before the run; above it, other programs disturb the figures


class NotHere(Exception):
    """A claim cannot be measured on this machine. The text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim's results. `headline` says what it is about, `failed` why there are no figures."""

    headline: str
    figures: tuple[Figure, ...] = ()
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    date: str
    commit: str
    machine: str
    quick: bool
    load_before: float
    load_after: float
    python: str = field(default_factory=platform.python_version)
    kernel: str = field(default_factory=platform.release)
    cores: int = len(CORES)
    left_out: tuple[str, ...] = ()  # claims that were not requested
    claims: Mapping[str, Claim] = field(default_factory=dict)

    @property
    def was_busy(self) -> bool:
        return self.load_before > BUSY_LOAD * self.cores

    def as_json(self) -> dict[str, Any]:
        claims = {
            name: {
                "headline": claim.headline,
                "failed": claim.failed,
                "figures": [figure.as_json() for figure in claim.figures],
            }
            for name, claim in self.claims.items()
        }
        members = {name: getattr(self, name) for name in self.__slots__ if name != "claims"}
        return members | {"claims": claims}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Results":
        claims = {
            name: Claim(claim["headline"], tuple(map(Figure.from_json, claim["figures"])), claim["failed"])
            for name, claim in kept["claims"].items()
        }
        return cls(**dict(kept) | {"claims": claims, "left_out": tuple(kept["left_out"])})


def begin() -> tuple[str, float]:
    """The date, and the load of the machine before anything is started."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), os.getloadavg()[0]


def finish(
    began: tuple[str, float], claims: Mapping[str, Claim], *, quick: bool, left_out: tuple[str, ...] = ()
) -> Results:
    (date, before), after = began, os.getloadavg()[0]
    return Results(
        date, commit(), machine(), quick, round(before, 2), round(after, 2), claims=claims, left_out=left_out
    )


def machine() -> str:
    """A description of this machine. Ratios of different machines cannot be compared."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, {memory / 2**20:.0f} GiB"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def commit() -> str:
    """The checked-out commit, with a `+` if files were changed since. Empty outside of a repository."""
    if not (found := _git("rev-parse", "--short", "HEAD")):
        return ""
    return found + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*words: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def write(results: Results, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results.as_json(), indent=1) + "\n")


def read(path: Path) -> Results:
    return Results.from_json(json.loads(path.read_text()))
