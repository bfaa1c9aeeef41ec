"""The stored form of a session: its spec and its state. Pure.

`SessionSpec` is what its creator and its browsers asked for; it changes rarely. `SessionState` is its progress; nearly
every write of the session carries it, so it is small. Members that a newer gateway has written are kept and written
back (gateway/protocol/stored_members.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import orjson
from msgspec import UNSET, UnsetType

from gateway.agents.launch import AgentLaunch
from gateway.auth.shares import Shares
from gateway.egress.budget import SpendLimit
from gateway.egress.prices import NANO
from gateway.egress.way import NO_WAY, WayInside
from gateway.limits.network import way_out
from gateway.protocol.stored_members import Unknown, arguments, dump
from gateway.vault.env_names import providers_of
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.protocol.agent_server import AgentServer

ALL_EVENTS = "all"


class SessionStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    SLEEPING = "sleeping"
    PAUSED = "paused"
    ERROR = "error"
    UNRESTORED = "unrestored"
    NEEDS_ENV = "needs_env"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True)
class Wish:
    """A creator's request. `env` holds secrets and stays in memory."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    agent: tuple[str, ...] | None = None  # a command
    network: str | None = None
    repo_url: str | None = None
    repo_branch: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    sleep_after: float | None = None
    limits: ResourceLimits = NO_LIMITS
    budget: dict[str, float] | None = None  # usd, tokens
    provider: str | None = None
    image: str | None = None
    agent_name: str | None = None  # an agent of the catalogue, instead of a command
    agent_server: AgentServer | None = None  # address of the command, if it is a server
    mode: str | None = None
    events: str | None = None
    config: dict[str, Any] | None = None  # of its agent, over its user's
    by_service: bool = False  # asked for by a service, not by a user


class SessionSpec(msgspec.Struct, frozen=True):
    agent: tuple[str, ...] | None = None  # None: HOLDFAST_AGENT decides
    network: str = "none"  # or "outbound", or hosts with commas between them (gateway/egress/policy.py)
    repo_url: str | None = None
    repo_branch: str | None = None
    title: str | None = None
    metadata: dict[str, Any] = {}
    has_env: bool = False
    env_providers: tuple[str, ...] = ()  # whose keys all of its variables were; none: there were others
    start: dict[str, Any] | None = None  # the kept `start` frame, members verbatim
    started: bool = False  # True once an agent process has had it
    pending: list[dict[str, Any]] = []  # requests that were open when the last process ended
    network_granted: bool = False  # by a service: a user could not have asked for it
    shares: Shares = msgspec.field(default_factory=Shares)  # tokens for other people's read access
    sleep_after: float | None = None  # seconds without activity; None: HOLDFAST_SLEEP_AFTER decides
    limits: dict[str, Any] | None = None  # as its creator asked, members verbatim
    limits_granted: bool = False  # by a service: more than a user could have asked for
    provider: str = "local"  # where its sandbox runs; sessions older than this member ran there
    image: str | None = None  # as its creator named it, or the setting at that time; None: the setting decides
    image_granted: bool = False  # by a service: a user could not have named it
    image_id: str = ""  # the engine's id of its first sandbox's image; later sandboxes use the same
    image_digest: str = ""  # the registry's digest of that image
    agent_name: str | None = None  # an agent of the catalogue, instead of a command
    mode: str | None = None  # what the agent may do without asking (gateway/agents/status.py); None: its own default
    agent_told: dict[str, str] = {}  # the agent's name, version and model, as it reported them
    events: str | None = None  # "all": frames that an agent's core does not know are passed on, too
    config: dict[str, Any] | None = None  # of its agent, over its user's: as gateway/agents/config.py keeps it
    budget: dict[str, float] | None = None  # of models: usd, tokens; None: no limit of its own
    agent_server: dict[str, str] | None = None  # address of the command, if it is a server: connect, health
    _unknown: Unknown = None

    @property
    def resources(self) -> ResourceLimits:
        """The limits that its creator asked for, as far as this version knows their names."""
        members = self.limits or {}
        return ResourceLimits(**{name: members[name] for name in ResourceLimits.__struct_fields__ if name in members})

    @property
    def spend_limit(self) -> SpendLimit:
        usd, tokens = ((self.budget or {}).get(name) for name in ("usd", "tokens"))
        return SpendLimit(None if usd is None else round(usd * NANO), None if tokens is None else int(tokens))

    def start_line(self) -> bytes | None:
        """The first line that a new agent process reads."""
        if self.start is None and self.mode is None:
            return None
        line = {"type": "start"} if self.start is None else dict(self.start)
        if self.mode is not None:
            line["mode"] = self.mode
        if self.started:
            line |= {"resume": True, "pending": self.pending}
        return orjson.dumps(line)

    def to_json(self) -> bytes:
        return _compact(dump(self))

    @classmethod
    def from_json(cls, raw: bytes) -> "SessionSpec":
        members = arguments(cls, orjson.loads(raw))
        if members.get("agent") is not None:
            members["agent"] = tuple(members["agent"])
        members["env_providers"] = tuple(members.get("env_providers", ()))
        if "shares" in members:
            members["shares"] = Shares.read(members["shares"])
        return cls(**members)


def _compact(text: bytes) -> bytes:
    """A copy that takes no more memory than its length. orjson returns the buffer it wrote into, of 4 KiB and more;
    these few hundred bytes stay in memory for as long as a session is loaded."""
    return bytes(memoryview(text))


def spec_members(wish: Wish, network: str = "none") -> dict[str, Any]:
    """The members of a spec that a wish sets; `network` is the default. The env is not stored: only that there is
    one."""
    return {
        "agent": wish.agent,
        "agent_name": wish.agent_name,
        "agent_server": wish.agent_server.members() if wish.agent_server else None,
        "mode": wish.mode,
        "events": wish.events,
        "config": wish.config,
        "agent_told": {},
        "network": wish.network or network,
        "network_granted": wish.by_service,
        "repo_url": wish.repo_url,
        "repo_branch": wish.repo_branch,
        "title": wish.title,
        "metadata": wish.metadata or {},
        "has_env": bool(wish.env),
        "env_providers": providers_of(wish.env),
        "sleep_after": wish.sleep_after,
        "limits": msgspec.structs.asdict(wish.limits) if wish.limits.any else None,
        "budget": wish.budget,
        "limits_granted": wish.by_service and wish.limits.any,
        "image": wish.image,
        "image_granted": wish.by_service and wish.image is not None,
        "image_id": "",
        "image_digest": "",
    }


def sandbox_spec(
    session_id: str,
    incarnation: int,
    spec: SessionSpec,
    agent: AgentLaunch,
    env: Mapping[str, str],
    *,
    has_snapshot: bool = False,
    empty: bool = False,
    limits: ResourceLimits = NO_LIMITS,
    way: WayInside = NO_WAY,
) -> SandboxSpec:
    """The request to the provider. `agent` is the command line of its agent; `limits` are the limits that the rule
    grants. A workspace that will be restored, or that begins empty, is not cloned."""
    return SandboxSpec(
        session_id=session_id,
        incarnation=incarnation,
        agent=agent.argv,
        network=way_out(spec.network),
        env=env,
        repo_url=None if has_snapshot or empty else spec.repo_url,
        repo_branch=None if has_snapshot or empty else spec.repo_branch,
        hold=True,
        empty=empty,
        limits=limits,
        provider=spec.provider,
        image=spec.image,
        image_id=spec.image_id,
        image_digest=spec.image_digest,
        core=agent.core,
        agent_env={**agent.env, **way.env},
        home_files=way.files,
        clone_key=way.clone_key,
        agent_libc=agent.libc,
        agent_server=agent.server,
        all_events=spec.events == ALL_EVENTS,
    )


_encode = msgspec.json.Encoder().encode
_ENDED = (SessionStatus.SLEEPING, SessionStatus.PAUSED, SessionStatus.NEEDS_ENV, SessionStatus.ERROR)


class SessionState(msgspec.Struct, frozen=True):
    status: SessionStatus = SessionStatus.SLEEPING
    reason: str = ""  # the cause of `status`, for people
    incarnation: int = 0
    has_workspace: bool = False
    taker: str | None = None  # the bridge whose notes say which messages it took; None when none can be outstanding
    epoch: str | None = None  # the newest agent process
    ended: bool = True  # True if that process is known to have ended
    offset: int = 0  # its frames up to here are in the conversation or in the checkpoint
    answer_from: int = 0  # the unfinished answer begins after this frame
    answered: int = 0  # every message up to this seq has had its `done`
    answered_ahead: tuple[int, ...] = ()  # the seqs above it that have had theirs, too
    extended: tuple[tuple[int, float], ...] = ()  # messages with an extended expiry, by seq: until when (UTC)
    last_active: float = 0.0
    generation: int = 0  # newest workspace generation known to be stored; 0: none
    tree: str = ""  # the name of that generation's tree
    files: int = 0  # number of files in it
    snapshot_bytes: int = 0  # their size; stores add these up (`usage`)
    synced_at: float | None = None
    sync_error: str = ""  # why the files on the disk are not stored; "" while syncs work
    clean: bool = False  # the sandbox was stopped after its last generation, and has not run since
    degraded: str = ""  # why an older generation than the newest was restored
    overfull: bool = False  # the sandbox was stopped with a workspace above its bound; the excess is on its disk
    fresh: bool = False  # the disk began with less than the newest generation, so a nearly empty disk is no loss
    _unknown: Unknown | UnsetType = UNSET

    @property
    def unkept(self) -> bool:
        """True if the disk may hold changes that are not stored."""
        return self.incarnation > 0 and not self.clean

    @property
    def leaves_something(self) -> bool:
        """True if the session leaves something to remove when it ends."""
        return self.has_workspace or self.unkept

    @property
    def left_behind(self) -> bool:
        """True if a sandbox that is known to have ended may have left unstored changes on its disk."""
        return self.unkept and self.status in _ENDED

    @property
    def wants_rescue(self) -> bool:
        """Like `left_behind`, if the changes are to be stored without a request. A workspace above its bound waits for
        its owner."""
        return self.left_behind and not self.overfull

    def to_json(self) -> bytes:
        # Written very often: msgspec alone is quicker. It leaves out unset members.
        return _encode(self) if self._unknown is UNSET else _compact(dump(self))

    @classmethod
    def from_json(cls, raw: bytes) -> "SessionState":
        members = arguments(cls, orjson.loads(raw))
        known = members.get("status") in set(SessionStatus)
        members["status"] = SessionStatus(members["status"]) if known else SessionStatus.SLEEPING
        members["answered_ahead"] = tuple(members.get("answered_ahead", ()))
        members["extended"] = tuple((seq, until) for seq, until in members.get("extended", ()))
        return cls(**members)
