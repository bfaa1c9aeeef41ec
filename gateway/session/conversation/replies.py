"""How a sender gets the outcome of a record: as frames, or over HTTP."""

from functools import partial

from gateway.protocol import chat_frames
from gateway.protocol.errors import ApiError
from gateway.protocol.nacks import text_of
from gateway.server.viewer import Viewer
from gateway.session.conversation.receipts import Accepted, MessageRefused, Reply
from persistence import crash_points

RETRY_SECONDS = 5.0
HTTP_STATUS = {"storage_unavailable": 503, "storage_full": 503, "owner_moved": 503, "rejected": 422, "archived": 409}


def acknowledge(viewer: Viewer, cid: str) -> Reply:
    """Ack or nack to one viewer."""
    return partial(_acknowledge, viewer, cid)


def _acknowledge(viewer: Viewer, cid: str, outcome: Accepted | MessageRefused) -> None:
    if isinstance(outcome, Accepted):
        crash_points.reached("ack.queued")
        viewer.send(chat_frames.ack(cid, outcome.seq, stage=outcome.stage, status=outcome.status))
        crash_points.reached("ack.sent")
    else:
        viewer.send(chat_frames.nack(cid, outcome.reason, outcome.text or text_of(outcome.reason)))


def refusal(refused: MessageRefused) -> ApiError:
    """The same over HTTP."""
    status, text = HTTP_STATUS.get(refused.reason, 429), refused.text or text_of(refused.reason) or refused.reason
    return ApiError(status, refused.reason, text, retry_after=RETRY_SECONDS if status in (429, 503) else None)


def session_failed() -> ApiError:
    return ApiError(503, "session_failed", "the session ended or failed here: try again, a message with the same cid")


def not_written() -> ApiError:
    told = (
        "the store does not answer: the change holds, and is stored when the store is back, unless the gateway ends "
        "first; ask again in a moment"
    )
    return ApiError(503, "storage_unavailable", told)


def not_known() -> ApiError:
    told = (
        "not done yet: the session's sandbox or the store does not answer. It is done when they do, if it still can "
        "be; look at the pending messages in a moment"
    )
    return ApiError(503, "storage_unavailable", told)


def sandbox_unavailable(error: Exception) -> ApiError:
    """The sandbox's provider does not answer, so the command had no effect."""
    return ApiError(503, "sandbox_unavailable", f"nothing was done: {error}. Try again in a moment")
