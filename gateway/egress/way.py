"""What a session wants of the proxy, and what its sandbox is told of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.egress.budget import NO_LIMIT, SpendLimit


@dataclass(frozen=True, slots=True)
class WayWanted:
    """Of one session: its network, its repository, and what it may spend."""

    network: str = "none"
    repo_url: str | None = None
    limit: SpendLimit = NO_LIMIT


@dataclass(frozen=True, slots=True)
class WayInside:
    """For a sandbox that starts. `clone_key` opens its repository to the git that clones it outside; it goes nowhere
    else."""

    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    clone_key: str = field(default="", repr=False)


NO_WAY = WayInside()
