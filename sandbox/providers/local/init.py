"""The first Python in a sandbox: sets limits, opens the log, then becomes the bridge.

`python -P -s -m sandbox.providers.local.init <rlimits as JSON> <config fd> <listen fd> <log fd>`. Limits are set
here, behind the namespaces: RLIMIT_NPROC then counts the processes of this sandbox, not everybody's (root is exempt
from it).
"""

import contextlib
import json
import os
import resource
import runpy
import sys


def main() -> None:
    for name, value in json.loads(sys.argv[1]).items():
        _lower(getattr(resource, name), value)
    log = int(sys.argv[4])
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.argv = [sys.argv[0], *sys.argv[2:4]]
    runpy.run_module("sandbox.bridge", run_name="__main__", alter_sys=True)


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(limit, (value, value))


if __name__ == "__main__":
    main()
