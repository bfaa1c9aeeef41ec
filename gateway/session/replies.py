"""How a sender hears what became of a record."""

from gateway import wire
from gateway.errors import ApiError
from gateway.session.conversation import Accepted, Refused, Reply
from gateway.sockets.viewers import Viewer

ADVICE = {
    "buffer_full": "the sandbox is away and its pending window is full: try again when it is back",
    "busy": "the agent is behind: try again later",
    "storage_unavailable": "the store does not answer: try again later",
    "storage_full": "the disk is full: make room, then try again",
    "rejected": "the store does not take this record",
    "archived": "the session is archived: create it again to revive its conversation",
}


def acknowledge(viewer: Viewer, cid: str) -> Reply:
    """Ack or nack to one viewer."""

    def reply(outcome: Accepted | Refused) -> None:
        if isinstance(outcome, Accepted):
            viewer.send(wire.ack(cid, outcome.seq, status=outcome.status))
        else:
            viewer.send(wire.nack(cid, outcome.reason, outcome.text or ADVICE.get(outcome.reason)))

    return reply


def refusal(refused: Refused) -> ApiError:
    """The same over HTTP."""
    return ApiError(503 if refused.reason.startswith("storage") else 429, refused.reason, ADVICE[refused.reason])


def session_failed() -> ApiError:
    return ApiError(503, "session_failed", "the session failed and is loaded again: try again, with the same cid")
