"""A session as the API shows it."""

import orjson
import pytest
from msgspec.structs import replace

from gateway.session.model.description import Live, SandboxPlace, describe
from gateway.session.model.state import SessionSpec, SessionState, SessionStatus

PLACE = SandboxPlace("local", "contained")
SHAPE = {
    "id", "userId", "status", "reason", "sandboxStatus", "provider", "level", "image", "imageDigest", "pull",
    "incarnation", "viewers", "pending", "lastSeq",
    "createdAt", "lastActiveAt", "hasWorkspace", "title", "metadata", "sleepAfter", "network", "agent", "events",
    "repoUrl", "repoBranch", "sync", "queue", "budget",
}  # fmt: skip


def test_a_session_that_is_not_loaded_sleeps_and_was_last_active_when_it_says() -> None:
    shown = describe("s", "u", 10.0, 7, SessionSpec(), SessionState(last_active=60.5), PLACE)
    assert set(shown) == SHAPE
    assert (shown["id"], shown["userId"], shown["lastSeq"]) == ("s", "u", 7)
    assert (shown["sandboxStatus"], shown["viewers"], shown["pending"]) == ("sleeping", 0, 0)
    assert (shown["provider"], shown["level"]) == ("local", "contained")
    assert shown["createdAt"] == "1970-01-01T00:00:10.000Z"
    assert shown["lastActiveAt"] == "1970-01-01T00:01:00.500Z"
    assert (shown["reason"], shown["agent"], shown["title"], shown["repoUrl"]) == (None, None, None, None)
    assert (shown["network"], shown["metadata"], shown["sleepAfter"]) == ("none", {}, None)
    assert shown["sync"] == {
        "state": "idle", "generation": 0, "lastSuccess": None, "lastError": None, "dirty": False, "degraded": None,
    }  # fmt: skip


def test_what_became_of_its_workspace_is_shown() -> None:
    def sync(state: SessionState) -> dict[str, object]:
        shown: dict[str, object] = describe("s", "u", 0.0, 0, SessionSpec(), state, PLACE)["sync"]
        return shown

    kept = SessionState(incarnation=3, generation=7, synced_at=10.0, clean=True, degraded="generation 8 is damaged")
    assert sync(kept) == {
        "state": "idle", "generation": 7, "lastSuccess": "1970-01-01T00:00:10.000Z", "lastError": None, "dirty": False,
        "degraded": "generation 8 is damaged",
    }  # fmt: skip
    assert sync(replace(kept, clean=False))["dirty"] is True
    failed = sync(replace(kept, sync_error="no room"))
    assert (failed["state"], failed["lastError"], failed["dirty"]) == ("failed", "no room", True)
    assert sync(replace(kept, status=SessionStatus.UNRESTORED))["state"] == "unrestored"


def test_a_session_that_never_did_anything_was_last_active_when_it_was_made() -> None:
    shown = describe("s", "u", 10.0, 0, SessionSpec(), SessionState(), PLACE)
    assert shown["lastActiveAt"] == shown["createdAt"]


def test_what_only_a_loaded_session_knows_comes_from_it() -> None:
    live = Live("connected", viewers=3, pending=2, last_active=90.0, sync={"state": "syncing", "attempt": 2})
    shown = describe("s", "u", 10.0, 7, SessionSpec(), SessionState(last_active=60.0), PLACE, live)
    assert (shown["sandboxStatus"], shown["viewers"], shown["pending"]) == ("connected", 3, 2)
    assert shown["lastActiveAt"] == "1970-01-01T00:01:30.000Z"
    assert (shown["sync"]["state"], shown["sync"]["attempt"], shown["sync"]["generation"]) == ("syncing", 2, 0)


def test_what_its_creator_asked_for_is_shown_and_no_secret_is_among_it() -> None:
    spec = SessionSpec(
        agent=("run", "me"),
        network="outbound",
        repo_url="https://example.com/a.git",
        repo_branch="main",
        title="A title",
        metadata={"k": [1]},
        has_env=True,
        start={"type": "start", "token": "in the frame"},
    )
    shown = describe("s", "u", 0.0, 0, spec, SessionState(reason="because"), PLACE)
    assert shown["agent"] == ["run", "me"]
    server = {"connect": "ws://127.0.0.1:80", "health": "/health"}
    told = describe("s", "u", 0.0, 0, replace(spec, agent_server=server), SessionState(), PLACE)
    assert told["agent"] == {"command": ["run", "me"], **server}
    assert (shown["network"], shown["title"], shown["metadata"]) == ("outbound", "A title", {"k": [1]})
    assert (shown["repoUrl"], shown["repoBranch"]) == ("https://example.com/a.git", "main")
    assert shown["reason"] == "because"
    assert b"in the frame" not in orjson.dumps(shown)


@pytest.mark.parametrize("status", SessionStatus)
def test_status_and_workspace_are_what_the_session_says_of_itself(status: SessionStatus) -> None:
    state = SessionState(status=status, has_workspace=True)
    shown = describe("s", "u", 0.0, 0, SessionSpec(), state, PLACE)
    assert (shown["status"], shown["hasWorkspace"]) == (str(status), True)
    without = describe("s", "u", 0.0, 0, SessionSpec(), replace(state, has_workspace=False), PLACE)
    assert without["hasWorkspace"] is False
