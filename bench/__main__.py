"""Runs what makes a claim and prints each figure beside its peer's. Nothing is asserted: read the ratios.

python -m bench [relay] [persistence] [objects] [sync] [terminal] [page] [--quick] [--json]
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import sys
import time

import uvloop

from bench.figures import Figure, machine, show
from bench.processes import LOAD, pin

CLAIMS = ("relay", "persistence", "objects", "sync", "terminal", "page")


async def run(names: list[str], *, quick: bool, as_json: bool) -> None:
    found: dict[str, list[Figure]] = {}
    for name in names:
        module = importlib.import_module(f"bench.{name}")
        began = time.monotonic()
        if not as_json:
            headline = (module.__doc__ or "").partition("\n\n")[0]
            print(f"{name}: {' '.join(headline.split())}\n", flush=True)
        # What a module says beside its figures must not get between the JSON.
        with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
            found[name] = await module.run(quick=quick)
        if not as_json:
            show(found[name], print)
            print(f"({time.monotonic() - began:.0f} s; {machine()})\n", flush=True)
    if as_json:
        print(json.dumps({name: [figure.as_json() for figure in figures] for name, figures in found.items()}, indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Holdfast beside named peers.")
    parser.add_argument("claims", nargs="*", metavar="claim", help=f"one of {', '.join(CLAIMS)}; all of them if none")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: a look, not a measurement")
    parser.add_argument("--json", action="store_true", help="for programs")
    chosen = parser.parse_args()
    if unknown := set(chosen.claims) - set(CLAIMS):
        parser.error(f"no such claim: {', '.join(sorted(unknown))}")
    pin(0, LOAD)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(chosen.claims or list(CLAIMS), quick=chosen.quick, as_json=chosen.json))


if __name__ == "__main__":
    main()
