"""What one sandbox may use of its host, and its usage."""

import msgspec

LEAST_MEMORY = 128 << 20  # the bridge alone has 30 to 100 MiB
LEAST_CPUS = 0.1  # a bridge takes some tenths of a second to start
LEAST_PIDS = 64  # threads count, and the bridge has some


class ResourceLimits(msgspec.Struct, frozen=True):
    """For all its processes together. None: no limit. `memory` is in bytes and includes files in memory; there is no
    swap beside it. `pids` counts threads."""

    memory: int | None = None
    cpus: float | None = None
    pids: int | None = None

    @property
    def any(self) -> bool:
        return self != NO_LIMITS


NO_LIMITS = ResourceLimits()


class ResourceUsage(msgspec.Struct, frozen=True):
    """Of all its processes together. None: nobody counts."""

    memory: int | None = None
    cpu_seconds: float | None = None
    pids: int | None = None


class Resources(msgspec.Struct, frozen=True):
    """A running sandbox's limits and its present usage."""

    limits: ResourceLimits = NO_LIMITS
    usage: ResourceUsage = ResourceUsage()
