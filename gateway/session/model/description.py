"""A session as the API shows it. Pure."""

from dataclasses import dataclass
from typing import Any

from gateway.egress.policy import read_text, shown
from gateway.session.model.state import SessionSpec, SessionState, SessionStatus
from persistence.record_json import iso


@dataclass(frozen=True, slots=True)
class Live:
    """Facts that only a loaded session has."""

    connection: str
    viewers: int
    pending: int
    last_active: float
    sync: dict[str, Any]
    pull: dict[str, Any] | None = None  # progress of the image pull that its start waits for
    queue: dict[str, Any] | None = None  # its place among the sessions that wait to be started


@dataclass(frozen=True, slots=True)
class SandboxPlace:
    provider: str
    level: str


def describe(
    session_id: str,
    user_id: str,
    created_at: float,
    last_seq: int,
    spec: SessionSpec,
    state: SessionState,
    place: SandboxPlace,
    live: Live | None = None,
) -> dict[str, Any]:
    live = live or Live("sleeping", 0, 0, state.last_active or created_at, {})
    return {
        "id": session_id,
        "userId": user_id or None,
        "status": state.status,
        "reason": state.reason or None,
        "sandboxStatus": live.connection,
        "provider": place.provider,
        "level": place.level,
        "image": spec.image,
        "imageDigest": spec.image_digest or spec.image_id or None,
        "pull": live.pull,
        "incarnation": state.incarnation,
        "viewers": live.viewers,
        "pending": live.pending,
        "lastSeq": last_seq,
        "createdAt": iso(created_at),
        "lastActiveAt": iso(live.last_active),
        "hasWorkspace": state.has_workspace,
        "title": spec.title,
        "metadata": spec.metadata,
        "sleepAfter": spec.sleep_after,
        "budget": spec.budget,
        "network": shown(read_text(spec.network)),
        "agent": _agent(spec),
        "events": spec.events,
        "repoUrl": spec.repo_url,
        "repoBranch": spec.repo_branch,
        "sync": {**describe_sync(state), **live.sync},
        "queue": live.queue,
    }


def _agent(spec: SessionSpec) -> list[str] | str | dict[str, Any] | None:
    if not spec.agent:
        return spec.agent_name
    command = list(spec.agent)
    return command if spec.agent_server is None else {"command": command, **spec.agent_server}


def describe_sync(state: SessionState) -> dict[str, Any]:
    """The workspace's part of the description, from the stored state alone."""
    unrestored = state.status is SessionStatus.UNRESTORED
    return {
        "state": "unrestored" if unrestored else "failed" if state.sync_error else "idle",
        "generation": state.generation,
        "lastSuccess": iso(state.synced_at) if state.synced_at is not None else None,
        "lastError": state.sync_error or None,
        "dirty": bool(state.sync_error) or state.unkept,
        "degraded": state.degraded or None,
    }
