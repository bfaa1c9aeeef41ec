"""A bridge that says at its end which modules it has loaded:
`python -m tests.support.telling_bridge <config fd> <listen fd>`."""

import sys

from sandbox.bridge.__main__ import main

if __name__ == "__main__":
    code = main()
    sys.stderr.write(f"loaded: {' '.join(sorted(sys.modules))}\n")
    sys.exit(code)
