"""Measure every claim and print each figure beside its peer's. Nothing is asserted: read the ratios.

python -m bench [claim ...] [--quick] [--json] [--write]
python -m bench --compare [--against COMMIT]
python -m bench --render
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import sys
import time
import traceback

import uvloop

from bench import history, report, results
from bench.figures import show
from bench.processes import LOAD, pin
from bench.results import Claim, NotHere, Results

CLAIMS = (
    "relay",
    "bridge",
    "frames",
    "growth",
    "persistence",
    "objects",
    "sync",
    "terminal",
    "page",
    "starts",
    "containers",
    "agents",
    "egress",
)


async def run(names: list[str], *, quick: bool, quiet: bool) -> Results:
    """Measure these claims. A claim that fails, or cannot be measured here, is reported; the others go on."""
    began, claims = results.begin(), dict[str, Claim]()
    for name in names:
        if (claim := await _measure(name, quick=quick, quiet=quiet)) is not None:
            claims[name] = claim
    left_out = tuple(name for name in CLAIMS if name not in claims)
    return results.finish(began, claims, quick=quick, left_out=left_out)


async def _measure(name: str, *, quick: bool, quiet: bool) -> Claim | None:
    module = importlib.import_module(f"bench.{name}")
    headline = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
    began = time.monotonic()
    # Other output of a module must not mix with the JSON.
    with contextlib.redirect_stdout(sys.stderr if quiet else sys.stdout):
        print(f"{name}: {headline}\n", flush=True)
        try:
            figures = await module.run(quick=quick)
        except NotHere as why:
            print(f"Not measured here: {why}\n", flush=True)
            return None
        except Exception as error:
            traceback.print_exc()
            return Claim(headline, failed=f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}")
        show(figures)
        print(f"({time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f})\n", flush=True)
    return Claim(headline, tuple(figures))


def compare(commit: str | None) -> int:
    """Print what got worse since an earlier run. Return 1 if something did, else 0."""
    lines = history.read(report.BESIDE / report.HISTORY)
    before = history.earlier(lines, commit)
    if before is None:
        print("There is no earlier run of this kind on this machine. To make one: make bench")
        return 0
    print(f"{lines[-1].commit} of {lines[-1].date} against {before.commit} of {before.date}")
    worse = history.got_worse(before, lines[-1])
    for each in worse:
        print(each)
    if not worse:
        print(f"Nothing got worse by more than {history.TOLERANCE:.0%} beyond the spread.")
    return int(bool(worse))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Holdfast beside named peers.")
    parser.add_argument("claims", nargs="*", metavar="claim", help=f"one of {', '.join(CLAIMS)}; all of them if none")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: a look, not a measurement")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--write", action="store_true", help="write docs/performance.md of these claims, and add to its history"
    )
    parser.add_argument("--render", action="store_true", help="run nothing: write the page anew from its JSON")
    parser.add_argument("--compare", action="store_true", help="run nothing: print what the last run made worse")
    parser.add_argument("--against", metavar="COMMIT", help="what to compare with, if not the run before the last")
    chosen = parser.parse_args()
    if unknown := set(chosen.claims) - set(CLAIMS):
        parser.error(f"no such claim: {', '.join(sorted(unknown))}")
    if chosen.compare:
        return compare(chosen.against)
    if chosen.render:
        report.render()
        return 0
    pin(0, LOAD)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run(chosen.claims or list(CLAIMS), quick=chosen.quick, quiet=chosen.json))
    if chosen.json:
        print(json.dumps(found.as_json(), indent=2))
    if chosen.write:
        report.write(found)
    return int(any(claim.failed for claim in found.claims.values()))


if __name__ == "__main__":
    sys.exit(main())
