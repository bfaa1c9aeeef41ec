"""Access to a session: its owner and services have it. To any other user the session does not exist."""

from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from gateway.auth.tokens import Principal
from gateway.protocol.errors import ApiError
from gateway.telemetry.telemetry import session_asked
from persistence.record import NO_USER

if TYPE_CHECKING:
    from gateway.session.actor import SessionActor
    from gateway.session.catalogue import Catalogue
    from gateway.session.registry import SessionRegistry
    from persistence.record import Session


def principal(request: Request) -> Principal:
    """The identity behind the request. The policy in front of every route has set it; a route without one is a bug and
    fails here."""
    who = request.state.principal
    assert isinstance(who, Principal)
    return who


async def owned(request: Request, registry: "SessionRegistry") -> "SessionActor":
    """The session named by the path, for its owner or a service. A stranger gets the same 404 as for an unknown id."""
    who = principal(request)
    user_id = who.user_id if who.kind == "user" else None
    actor = await registry.find(request.path_params["id"], user_id=user_id)
    if actor is None:
        raise unknown_session()
    return actor


async def looked_at(request: Request, catalogue: "Catalogue") -> "Session":
    """Like `owned`, for requests that only read: the session is not loaded."""
    session = await catalogue.look(request.path_params["id"])
    if session is None or not _may(request, session.user_id):
        raise unknown_session()
    return session


def note_asked(request: Request, catalogue: "Catalogue", user_id: str, what: str, **fields: Any) -> None:
    """Log a request about the session named by the path, which belongs to `user_id`."""
    session_id, by = request.path_params["id"], principal(request).kind
    provider = catalogue.provider_of(session_id)
    session_asked(what, by, session_id=session_id, user_id=user_id, provider=provider, **fields)


def unknown_session() -> ApiError:
    return ApiError(404, "unknown_session", "there is no such session")


def _may(request: Request, user_id: str) -> bool:
    who = principal(request)
    return who.kind != "user" or (who.user_id == user_id != NO_USER)
