"""The resources of its host that a session's sandbox may use. Pure.

HOLDFAST_LIMIT_MEMORY, _CPUS and _PIDS are the limits of every sandbox and the most that a user may ask for; a service
may ask for more. A user's choice is bounded again at each start: the settings may have changed since.
"""

from dataclasses import dataclass
from typing import TypeVar

from sandbox.ports.resources import NO_LIMITS, ResourceLimits

MOST_MEMORY = 1 << 46
MOST_CPUS = 4096
MOST_PIDS = 1 << 22
Limit = TypeVar("Limit", int, float)
NAMES = ("memory", "cpus", "pids")


@dataclass(frozen=True, slots=True)
class ResourceRule:
    most: ResourceLimits = NO_LIMITS

    def refusal(self, asked: ResourceLimits, *, granted: bool = False) -> str | None:
        """The reason why a session may not have these limits; None if it may. `granted`: a service asked for them."""
        for name in NAMES:
            wanted, most = getattr(asked, name), getattr(self.most, name)
            if not granted and wanted is not None and most is not None and wanted > most:
                return (
                    f"limits.{name}: {wanted} is more than users may ask for here, {most}: the operator can allow more "
                    f"(HOLDFAST_LIMIT_{name.upper()}), or let a service create the session"
                )
        return None

    def given(self, asked: ResourceLimits, *, granted: bool = False) -> ResourceLimits:
        """The limits of a sandbox whose session asked for these."""
        most = self.most
        return ResourceLimits(
            memory=_given(asked.memory, most.memory, granted),
            cpus=_given(asked.cpus, most.cpus, granted),
            pids=_given(asked.pids, most.pids, granted),
        )


def _given(asked: Limit | None, most: Limit | None, granted: bool) -> Limit | None:
    if asked is None or most is None:
        return most if asked is None else asked
    return asked if granted else min(asked, most)
