"""The HTTP errors for refusals of a session's life: the status of each code, and when to try again."""

from gateway.limits.start_turns import FREED_SECONDS
from gateway.protocol.errors import ApiError
from gateway.session.conversation.replies import RETRY_SECONDS, session_failed

# For each code with which the table refuses. An effect whose code is not listed is refused with its own error.
HTTP_STATUS = {
    "archived": 409,
    "paused": 409,
    "unrestored": 409,
    "not_unrestored": 409,
    "not_paused": 409,
    "not_synced": 409,
    "busy": 429,
    "too_many_running": 429,
    "sync_failed": 503,
    "sandbox_unavailable": 503,
    "storage_unavailable": 503,
    "draining": 503,
    "session_failed": 503,
}
# For these codes the failed effect has an error of its own, which is raised instead.
RAISED = ("not_stopped", "not_destroyed", "not_put_back", "sync_failed", "storage_unavailable")
RETRY_AFTER = {"too_many_running": FREED_SECONDS, "busy": RETRY_SECONDS}


def api_error(code: str, text: str) -> ApiError:
    if code == "session_failed":
        return session_failed()
    return ApiError(HTTP_STATUS.get(code, 500), code, text, retry_after=RETRY_AFTER.get(code))
