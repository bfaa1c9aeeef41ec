"""Whether this machine lets a test have control groups."""

import tempfile
from pathlib import Path

from sandbox.providers.cgroups import groups
from sandbox.providers.cgroups.groups import NoGroups


def _problem() -> str:
    with tempfile.TemporaryDirectory() as place:
        try:
            found = groups.find(groups.tag(Path(place)))
        except NoGroups as error:
            return f"no control groups here: {error}"
        found.close()
        lacking = {"memory", "pids", "cpu"} - found.controllers
        return f"control groups here lack {', '.join(sorted(lacking))}" if lacking else ""


NO_GROUPS = _problem()  # why not; empty: it does
