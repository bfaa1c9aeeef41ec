"""Where sessions' sandboxes run: all those of one provider."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sandbox.ports.progress import OnProgress, unheard
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.ports.sandbox import Sandbox
from sandbox.protocol.agent_server import AgentServer

AGENTS = "/holdfast-agents"  # installed agents, in commands: a provider replaces it with its own directory


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """How to make a session's sandbox. `env` holds secrets: never store it, log it, or put it on a command line."""

    session_id: str
    incarnation: int
    agent: tuple[str, ...]
    network: str = "none"  # or "outbound"
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    repo_url: str | None = None
    repo_branch: str | None = None
    clone_key: str = field(default="", repr=False)  # for the clone alone, as HTTP's Basic has it; "": it needs none
    hold: bool = False  # the agent may not start before `Tree.release`
    empty: bool = False  # begin with empty roots; the old ones stay beside them
    limits: ResourceLimits = NO_LIMITS
    provider: str = ""  # which of several fleets; "": the only one, or the first
    image: str | None = None  # an image's name; None: the provider's default. Only for providers with images
    image_id: str = ""  # the provider's id of the session's first image; "": the present meaning of the name
    image_digest: str = ""  # the registry's digest of it; "": no registry is known to have it
    core: str = ""  # of the bridge, that speaks with the agent; "": its default
    agent_env: Mapping[str, str] = field(default_factory=dict)  # environment that this kind of agent needs; no secrets
    home_files: Mapping[str, str] = field(default_factory=dict)  # below HOME, written where there are none; no secrets
    agent_libc: str = ""  # the C library of the agent: glibc or musl; "": it needs none
    all_events: bool = False  # pass on events of the agent that its core does not know
    agent_server: AgentServer | None = None  # the agent is reached there, and not by its pipes


@dataclass(frozen=True, slots=True)
class ProviderHealth:
    """A provider's present state. `problem`: why it can start nothing, in words for the user; None: it can. `cpus` and
    `memory` (bytes) are those of the machine that its sandboxes share; None: unknown."""

    problem: str | None = None
    cpus: int | None = None
    memory: int | None = None


class Fleet(Protocol):
    """Starts and finds sandboxes. A sandbox outlives the gateway; every method is safe to repeat. `start` and `running`
    may raise SandboxUnavailable: the provider does not answer, and the state is unknown."""

    @property
    def name(self) -> str:
        """`local`, `memory`, ...: the provider's, stored with each session."""
        ...

    @property
    def level(self) -> str:
        """`trusted`, `contained`, ..."""
        ...

    async def open(self) -> None:
        """Check that the provider can work here; raises SandboxFailed with what to install or set. A provider that
        does not answer now is no failure: the sessions of other providers go on without it."""
        ...

    async def health(self) -> ProviderHealth:
        """Ask the provider for its state: at most one question; the caller bounds the time. Raises none of the
        provider's errors: one that does not answer has a `problem`."""
        ...

    def check(self, spec: SandboxSpec) -> None:
        """Raise SandboxFailed, in words for the user, if such a sandbox could never start here. Queries nothing."""
        ...

    async def start(self, spec: SandboxSpec, progress: OnProgress = unheard) -> None:
        """Run the sandbox until its bridge answers; `progress` is called meanwhile. First ends a running sandbox of
        this session: a new start is a new incarnation. Clones `repo_url` into an empty workspace. The roots are as
        the last stop, or a killed sandbox, left them, unless `empty`. With images, the last call of `progress` names
        the image. Raises SandboxFailed."""
        ...

    async def running(self) -> list[str]:
        """Session ids of sandboxes that run now, including those that an earlier gateway process started."""
        ...

    def sandbox(self, session_id: str) -> Sandbox:
        """The handle of a session's sandbox, whether it runs or not. Queries nothing."""
        ...

    async def close(self) -> None:
        """Release everything; sandboxes go on running."""
        ...
