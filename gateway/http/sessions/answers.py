"""Sessions and their terminals as the API shows them."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from gateway.agents.status import AgentState
from gateway.limits.network import NETWORKS
from gateway.routing.json_types import JsonAnswer, Number, Owner, SessionId, Time, Whole, meaning, one_of
from gateway.session.model.state import SessionStatus

Status = Annotated[str, one_of(*SessionStatus)]
SandboxStatus = Annotated[str, one_of("connecting", "connected", "disconnected", "sleeping")]
SyncStateName = Annotated[str, one_of("unrestored", "idle", "pending", "syncing", "flushing", "failed")]
Network = Annotated[
    Annotated[str, one_of(*NETWORKS)] | dict[str, list[str]],
    meaning('none, outbound (every public host), or {"allow": [hosts]}'),
]


class TerminalExit(JsonAnswer):
    code: Whole | None
    signal: str | None


class TerminalJson(JsonAnswer):
    name: str
    epoch: Annotated[str, meaning("of the program that runs there")]
    base: Annotated[Whole, meaning("the oldest offset that can be resumed from")]
    offset: Annotated[Whole, meaning("bytes its program has written")]
    cols: Whole
    rows: Whole
    viewers: Whole
    idle_seconds: Annotated[float, Meta(ge=0)]
    alive: bool
    exit: TerminalExit | None
    title: str
    command: list[str]


class SyncMoved(JsonAnswer):
    state: SyncStateName
    generation: Whole
    at: Time
    attempt: Whole | UnsetType = UNSET
    reason: Annotated[str | UnsetType, meaning("why the last attempt failed")] = UNSET


class UnreadFiles(JsonAnswer):
    count: Whole
    paths: list[str]


class Sync(JsonAnswer):
    state: SyncStateName
    generation: Annotated[Whole, meaning("the newest stored one; 0 for none")]
    last_success: Time | None
    last_error: str | None
    dirty: Annotated[bool, meaning("there may be changes that are not stored yet")]
    degraded: Annotated[str | None, meaning("why an older generation than the newest was restored")]
    attempt: Whole | UnsetType = UNSET
    restore: Annotated[dict[str, Any] | UnsetType, meaning("progress of a restore")] = UNSET
    unread: Annotated[
        UnreadFiles | UnsetType,
        meaning("files that the last sync could not read: left out, or in their last stored state"),
    ] = UNSET
    history: Annotated[list[SyncMoved] | UnsetType, meaning("of one session alone: the last 50, the oldest first")] = (
        UNSET
    )


class StartPlace(JsonAnswer):
    """Its place among the sessions that wait to start."""

    position: Whole
    reason: Annotated[str | None, meaning("which limit")]


class PullJson(JsonAnswer):
    """Progress of its image's pull. Sizes that are not known yet count as 0."""

    image: str
    layers: Whole
    of_layers: Whole
    bytes: Whole
    of_bytes: Whole


class LimitsJson(JsonAnswer):
    """The sandbox's limits; null: no limit."""

    memory: Annotated[Whole | None, meaning("bytes")]
    cpus: float | None
    pids: Annotated[Whole | None, meaning("processes and threads")]


class UsageJson(JsonAnswer):
    """The sandbox's present use; null: not measured."""

    memory: Annotated[Whole | None, meaning("bytes, files in memory included")]
    cpu_seconds: Annotated[float | None, meaning("since its start")]
    pids: Whole | None


class AgentStatusJson(JsonAnswer):
    """The session's agent. A member that it has not reported is null."""

    name: str | None
    version: str | None
    session: Annotated[str | None, meaning("the agent's own id of its conversation")]
    model: str | None
    mode: Annotated[str | None, meaning("what it may do without asking")]
    state: Annotated[str, one_of(*AgentState)]


class AgentServerJson(JsonAnswer):
    """An agent that is reached over a WebSocket."""

    command: list[str]
    connect: str
    health: Annotated[str, meaning("empty: it is ready when it can be connected to")]


class NeededCredential(JsonAnswer):
    provider: str
    problem: Annotated[str, meaning("why the one there is cannot be used")]


class ModelsJson(JsonAnswer):
    """What it has spent on models in all."""

    requests: Whole
    input_tokens: Annotated[Whole, meaning("without those of a cache")]
    output_tokens: Whole
    cache_read_tokens: Whole
    cache_write_tokens: Whole
    cost_usd: Annotated[float, meaning("of what has a price")]
    unpriced_tokens: Annotated[Whole, meaning("of models without a price: their cost is unknown")]
    estimated: Annotated[Whole, meaning("requests that did not say what they cost")]


class BudgetJson(JsonAnswer):
    """Of its creator."""

    usd: float | UnsetType = UNSET
    tokens: Whole | UnsetType = UNSET


class SessionJson(JsonAnswer):
    id: SessionId
    user_id: Owner
    status: Status
    reason: str | None
    sandbox_status: SandboxStatus
    provider: str
    level: str
    image: Annotated[str | None, meaning("as it was named; null: none, or as HOLDFAST_DOCKER_IMAGE says")]
    image_digest: Annotated[str | None, meaning("its digest at the first start; later starts use the same")]
    pull: Annotated[PullJson | None, meaning("while its start waits for its image")]
    incarnation: Whole
    viewers: Whole
    pending: Whole
    last_seq: Whole
    created_at: Time
    last_active_at: Time
    has_workspace: bool
    title: str | None
    metadata: dict[str, Any]
    sleep_after: Annotated[float | None, meaning("seconds; null: as HOLDFAST_SLEEP_AFTER says")]
    budget: Annotated[BudgetJson | None, meaning("what it may spend on models; null: no limit of its own")]
    network: Network
    agent: Annotated[
        list[str] | str | AgentServerJson | None,
        meaning("a command, a server, or the name of an agent; null: as HOLDFAST_AGENT says"),
    ]
    events: Annotated[
        str | None, meaning("all: other events of the agent come as agent_event frames; null: they are left out")
    ]
    repo_url: str | None
    repo_branch: str | None
    sync: Sync
    queue: StartPlace | None
    terminals: list[TerminalJson] | UnsetType | None = UNSET
    limits: Annotated[
        LimitsJson | UnsetType | None,
        meaning("of one session alone: enforced now; null: none, or it does not run"),
    ] = UNSET
    agent_status: Annotated[AgentStatusJson | UnsetType, meaning("of one session alone")] = UNSET
    needs_credentials: Annotated[
        list[NeededCredential] | UnsetType,
        meaning("of one session alone: what has to be set again by PUT /api/credentials/{provider}"),
    ] = UNSET
    models: Annotated[ModelsJson | UnsetType, meaning("of one session alone")] = UNSET
    usage: Annotated[UsageJson | UnsetType | None, meaning("of one session alone; null likewise")] = UNSET


class Sessions(JsonAnswer):
    sandboxes: list[SessionJson]


class Listed(JsonAnswer):
    id: SessionId
    user_id: Owner
    status: Status
    sandbox_status: SandboxStatus
    title: str | None
    viewers: Whole
    pending: Whole
    created_at: Time
    last_active_at: Time
    messages: Annotated[Whole, meaning("how many are kept")]
    first_seq: Whole
    last_seq: Whole


class ListJson(JsonAnswer):
    sessions: list[Listed]
    next: SessionId | None


class ListedShare(JsonAnswer):
    number: Annotated[Number, meaning("of the session's own; never given twice")]
    label: str
    created_at: Time
    expires_at: Time
