"""What a session remembers of itself between two lives of the gateway. Pure.

`SessionSpec` is what its creator and its browsers asked for and changes rarely. `SessionState` is where it stands and
is written with almost everything it does, so it is small. Members that a newer gateway has written are kept and
written back (gateway/protocol/stored_members.py).
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
from gateway.protocol.stored_members import Unknown, arguments, dump
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
    """What a creator asks for. `env` holds secrets and stays in memory."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    agent: tuple[str, ...] | None = None  # a command
    network: str | None = None
    repo_url: str | None = None
    repo_branch: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    sleep_after: float | None = None
    limits: ResourceLimits = NO_LIMITS
    provider: str | None = None
    image: str | None = None
    agent_name: str | None = None  # which agent, where it is no command
    agent_server: AgentServer | None = None  # where the command is reached, if it is a server
    mode: str | None = None
    events: str | None = None
    by_service: bool = False  # asked for by a service, not by a user


class SessionSpec(msgspec.Struct, frozen=True):
    agent: tuple[str, ...] | None = None  # None: whatever HOLDFAST_AGENT says
    network: str = "none"
    repo_url: str | None = None
    repo_branch: str | None = None
    title: str | None = None
    metadata: dict[str, Any] = {}
    has_env: bool = False
    start: dict[str, Any] | None = None  # the kept `start` frame, members verbatim
    started: bool = False  # whether an agent process has had it already
    pending: list[dict[str, Any]] = []  # requests that were open when the last process ended
    network_granted: bool = False  # by a service: a user could not have asked for it
    shares: Shares = msgspec.field(default_factory=Shares)  # who else may look
    sleep_after: float | None = None  # seconds without activity; None: whatever HOLDFAST_SLEEP_AFTER says
    limits: dict[str, Any] | None = None  # what its creator asked for, members verbatim
    limits_granted: bool = False  # by a service: more than a user could have asked for
    provider: str = "local"  # where its sandbox runs; those from before this was stored ran there
    image: str | None = None  # as its creator named it, or the setting at that time; None: whatever the setting says
    image_granted: bool = False  # by a service: a user could not have named it
    image_id: str = ""  # what its first sandbox was made of, as the engine calls it, and so are all later ones
    image_digest: str = ""  # the same, as its registry calls it
    agent_name: str | None = None  # which agent of the catalogue, where it is no command
    mode: str | None = None  # what the agent may do without asking (gateway/agents/status.py); None: as it likes
    agent_told: dict[str, str] = {}  # who the agent says that it is
    events: str | None = None  # "all": also what an agent's core does not know is passed on
    agent_server: dict[str, str] | None = None  # where the command is reached, if it is a server: connect, health
    _unknown: Unknown = None

    @property
    def resources(self) -> ResourceLimits:
        """What its creator asked for, as far as this version knows it."""
        members = self.limits or {}
        return ResourceLimits(**{name: members[name] for name in ResourceLimits.__struct_fields__ if name in members})

    def start_line(self) -> bytes | None:
        """What a new agent process reads first."""
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
        if "shares" in members:
            members["shares"] = Shares.read(members["shares"])
        return cls(**members)


def _compact(text: bytes) -> bytes:
    """The same in no more memory than it needs. orjson returns the buffer it wrote into, of 4 KiB and more; these few
    hundred bytes are kept for as long as a session is loaded."""
    return bytes(memoryview(text))


def spec_members(wish: Wish, network: str = "none") -> dict[str, Any]:
    """What of a wish is kept; `network` is for who asked for none. The env is not kept: only that there is one."""
    return {
        "agent": wish.agent,
        "agent_name": wish.agent_name,
        "agent_server": wish.agent_server.members() if wish.agent_server else None,
        "mode": wish.mode,
        "events": wish.events,
        "agent_told": {},
        "network": wish.network or network,
        "network_granted": wish.by_service,
        "repo_url": wish.repo_url,
        "repo_branch": wish.repo_branch,
        "title": wish.title,
        "metadata": wish.metadata or {},
        "has_env": bool(wish.env),
        "sleep_after": wish.sleep_after,
        "limits": msgspec.structs.asdict(wish.limits) if wish.limits.any else None,
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
) -> SandboxSpec:
    """What the provider is asked for; `agent` is what its agent is run as, `limits` what the rule makes
    of those that the session asks for. A workspace that will be
    restored, or begins empty, is not cloned."""
    return SandboxSpec(
        session_id=session_id,
        incarnation=incarnation,
        agent=agent.argv,
        network=spec.network,
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
        agent_env=agent.env,
        agent_libc=agent.libc,
        agent_server=agent.server,
        all_events=spec.events == ALL_EVENTS,
    )


_encode = msgspec.json.Encoder().encode
_ENDED = (SessionStatus.SLEEPING, SessionStatus.PAUSED, SessionStatus.NEEDS_ENV, SessionStatus.ERROR)


class SessionState(msgspec.Struct, frozen=True):
    status: SessionStatus = SessionStatus.SLEEPING
    reason: str = ""  # why `status` is what it is, for people
    incarnation: int = 0
    has_workspace: bool = False
    taker: str | None = None  # whose notes say what was taken; None when nothing can be outstanding
    epoch: str | None = None  # the newest agent process
    ended: bool = True  # whether that process is known to have ended
    offset: int = 0  # its frames up to here are in the conversation or in the checkpoint
    answer_from: int = 0  # the unfinished answer begins after this frame
    answered: int = 0  # every message up to this seq has had its `done`
    answered_ahead: tuple[int, ...] = ()  # of those above it, which have had theirs, too
    extended: tuple[tuple[int, float], ...] = ()  # messages that wait longer than others, by seq: until when (UTC)
    last_active: float = 0.0
    generation: int = 0  # of the workspace, the newest one known to be stored; 0: none
    tree: str = ""  # what that generation's tree is called
    files: int = 0  # how many files it has
    snapshot_bytes: int = 0  # how large they are; stores add these up (`usage`)
    synced_at: float | None = None
    sync_error: str = ""  # why what is on the disk is not stored; "" while syncs work
    clean: bool = False  # the sandbox was stopped after its last generation, and has not run since
    degraded: str = ""  # why an older generation than the newest was restored
    overfull: bool = False  # the sandbox was stopped although its workspace is more than may be kept: its disk has it
    fresh: bool = False  # the disk began with less than the newest generation: that there is little on it says nothing
    _unknown: Unknown | UnsetType = UNSET

    @property
    def unkept(self) -> bool:
        """Whether there may be something on the disk that is not kept."""
        return self.incarnation > 0 and not self.clean

    @property
    def leaves_something(self) -> bool:
        """Whether there is something to remove when the session ends."""
        return self.has_workspace or self.unkept

    @property
    def left_behind(self) -> bool:
        """Whether a sandbox that is known to have ended may have left something on its disk that is not kept."""
        return self.unkept and self.status in _ENDED

    @property
    def wants_rescue(self) -> bool:
        """The same, if it is to be kept unasked. What is more than may be kept waits for its owner."""
        return self.left_behind and not self.overfull

    def to_json(self) -> bytes:
        # Written with almost everything: msgspec alone is quicker. It leaves out what is unset.
        return _encode(self) if self._unknown is UNSET else _compact(dump(self))

    @classmethod
    def from_json(cls, raw: bytes) -> "SessionState":
        members = arguments(cls, orjson.loads(raw))
        known = members.get("status") in set(SessionStatus)
        members["status"] = SessionStatus(members["status"]) if known else SessionStatus.SLEEPING
        members["answered_ahead"] = tuple(members.get("answered_ahead", ()))
        members["extended"] = tuple((seq, until) for seq, until in members.get("extended", ()))
        return cls(**members)
