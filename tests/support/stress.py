"""`make stress` runs this: the whole suite again and again beside a busy loop on every core. It lists the failures,
by test and seed, and exits with 1 if there are any.

A test that passes here passes on a busy machine: events of other processes may come late by seconds, and in any
order. Each run has its own seed, for the campaigns and for hypothesis.
"""

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.side_by_side import groups
from tests.support.waiting import whole_lines

BUSY_LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
LEAVING_SECONDS = 60  # for fixtures, when the time is over
FAILED = 1  # how pytest exits if tests failed, and nothing worse happened


@dataclass(frozen=True, slots=True)
class Failure:
    test: str
    when: str
    seeds: tuple[int, ...]
    why: str
    report: str


@dataclass(slots=True)
class Run:
    """One run of the suite. `wrong` are problems beside the failures of tests, `left` is what was not done in time."""

    number: int
    seed: int
    failures: list[Failure] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.failures or self.wrong)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_once(run: Run, suite: Mapping[str, Sequence[str]], deadline: float, scratch: Path) -> None:
    """Run all groups side by side until they have ended, or the time is over."""
    started = {name: _start(name, words, run.seed, scratch) for name, words in suite.items()}
    try:
        for name, process in started.items():
            try:
                _read(run, name, process.wait(max(deadline - time.monotonic(), 0)), scratch)
            except subprocess.TimeoutExpired:
                _read(run, name, None, scratch)  # now: it may fail when it is ended
    finally:
        _end(started.values())


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """First in a way that lets fixtures end their processes."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGINT)
    for process in running:
        try:
            process.wait(LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(name: str, words: Sequence[str], seed: int, scratch: Path) -> subprocess.Popen[bytes]:
    for kind in ("notes", "said"):
        (scratch / f"{name}.{kind}").unlink(missing_ok=True)
    own = {"HOLDFAST_TEST_SEED": str(seed), "HOLDFAST_TEST_FAILURES": str(scratch / f"{name}.notes")}
    own["COVERAGE_FILE"] = str(scratch / ".coverage")
    with (scratch / f"{name}.said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, *words, f"--hypothesis-seed={seed}"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own},
            start_new_session=True,
        )


def _read(run: Run, name: str, code: int | None, scratch: Path) -> None:
    """The output of one group; no `code` means that its time was over."""
    notes = [json.loads(line) for line in whole_lines(scratch / f"{name}.notes")]
    found = [
        Failure(note["failed"], note["when"], tuple(note["seeds"]) or (run.seed,), note["why"], note["report"])
        for note in notes
        if "failed" in note
    ]
    run.failures += found
    if code == 0 or (code == FAILED and found):
        return
    under_way = [note["began"] for note in notes if "began" in note][-1:]
    if {"ended": "".join(under_way)} in notes:
        under_way = []
    during = f" during {under_way[0]}" if under_way else ""
    if code is None:
        run.left.append(f"{name}: out of time{during}")
    else:
        tail = "\n".join(whole_lines(scratch / f"{name}.said")[-20:])
        run.wrong.append(f"{name}: ended with {code}{during}\n{tail}")


def summary(runs: Sequence[Run]) -> str:
    """The failures by test: how often, in which runs, from which seeds."""
    lines = []
    by_test: dict[str, list[tuple[Run, Failure]]] = {}
    for run in runs:
        for failure in run.failures:
            by_test.setdefault(failure.test, []).append((run, failure))
    for test, seen in sorted(by_test.items(), key=lambda each: (-len(each[1]), each[0])):
        lines.append(f"{test}: failed {len(seen)} times")
        for run, failure in seen:
            seeds = " ".join(map(str, failure.seeds))
            lines.append(f"  run {run.number}, seed {seeds}, in {failure.when}: {failure.why}")
        run, failure = seen[0]
        again = f"HOLDFAST_TEST_SEED={failure.seeds[0]} python -m pytest --hypothesis-seed={run.seed} '{test}'"
        lines.append(f"  again: {again}")
    lines += [f"run {run.number}, seed {run.seed}: {what}" for run in runs for what in run.wrong + run.left]
    finished, failed = sum(not run.left for run in runs), sum(run.failed for run in runs)
    lines.append(f"stress: {finished} of {len(runs)} runs finished, {failed} failed, {len(by_test)} tests failed")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.stress", description=__doc__)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=240, help="for all runs together")
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="how many busy loops (one a core)")
    parser.add_argument("--seed", type=int, help="of the first run; each has one of its own otherwise")
    parser.add_argument("pytest", nargs="*", help="run pytest with these words instead of the whole suite")
    asked = parser.parse_args(words)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background; the runs would ignore it, too: see _end
        signal.signal(signal.SIGINT, signal.default_int_handler)
    suite = {"these tests": ["-m", "pytest", *asked.pytest]} if asked.pytest else groups()
    deadline = time.monotonic() + asked.minutes * 60
    runs: list[Run] = []
    with TemporaryDirectory(prefix="holdfast-stress-") as scratch, busy_loops(asked.busy):
        while len(runs) < asked.runs and time.monotonic() < deadline:
            seed = asked.seed if asked.seed is not None and not runs else secrets.randbits(32)
            runs.append(run := Run(len(runs) + 1, seed))
            _say(f"run {run.number} of {asked.runs}, seed {run.seed}, beside {asked.busy} busy loops")
            began = time.monotonic()
            run_once(run, suite, deadline, Path(scratch))
            minutes = (time.monotonic() - began) / 60
            for failure in run.failures:
                _say(f"{failure.test}, seed {' '.join(map(str, failure.seeds))}:\n{failure.report}\n")
            _say(f"run {run.number}: {len(run.failures) + len(run.wrong)} failures, {minutes:.1f} minutes")
    _say(summary(runs))
    return int(any(run.failed for run in runs) or all(run.left for run in runs))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
