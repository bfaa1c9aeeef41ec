"""Where the engine's host has the files of this gateway. Pure.

An engine mounts paths of its own host. A gateway that runs in a container of that engine has its data directory in a
volume, which lies elsewhere on the host; the engine tells where. The kernel tells which container it is: engines mount
a container's names of hosts from a directory that is named after it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.providers.container.engine_answers import BadAnswer, members
from sandbox.providers.container.image import Unusable

_OWN_FILES = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
_CONTAINER = re.compile(r"containers/([0-9a-f]{64})/")
_ROOT, _MOUNT_POINT = 3, 4  # fields of a line of mountinfo


@dataclass(frozen=True, slots=True)
class HostPaths:
    """`mounts`: by the directory in this gateway's container, its path on the host; None on the host itself."""

    mounts: Mapping[Path, Path] | None = None

    @property
    def in_container(self) -> bool:
        return self.mounts is not None

    def of(self, path: Path) -> str:
        """Raises Unusable if the host has no such path."""
        if self.mounts is None:
            return str(path)
        for place in (path, *path.parents):
            source = self.mounts.get(place)
            if source is not None:
                return str(source / path.relative_to(place))
        raise Unusable(f"the gateway runs in a container, and {path} is in no volume of it: mount one there")


def own_container(mountinfo: str) -> str | None:
    """The id of the container that reads this as /proc/self/mountinfo; None if an engine's container does not."""
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        named = fields[_ROOT] if len(fields) > _MOUNT_POINT and fields[_MOUNT_POINT] in _OWN_FILES else ""
        if found := _CONTAINER.search(named):
            return found[1]
    return None


def host_paths(container: Mapping[str, Any] | None) -> HostPaths:
    """Of the gateway whose container the engine describes like this; None: the engine knows no such container, so both
    are on one host, or have the same directories mounted. Raises BadAnswer."""
    if container is None:
        return HostPaths()
    mounts = container.get("Mounts") or []
    if not isinstance(mounts, list):
        raise BadAnswer("it does not report its mounts")
    paths = [(members(each).get("Destination"), members(each).get("Source")) for each in mounts]
    # What is no directory of the host, such as a tmpfs, has no source.
    return HostPaths({Path(str(inside)): Path(str(source)) for inside, source in paths if source})
