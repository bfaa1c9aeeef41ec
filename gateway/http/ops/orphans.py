"""Orphans, for operators: leftovers of sandboxes that no session can use, listed and removed."""

from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import ADMINS
from gateway.http.responses import answer
from gateway.protocol.errors import ApiError
from gateway.routing.json_types import JsonAnswer, meaning
from gateway.routing.route import route
from gateway.session.orphans import Orphan, Orphans
from sandbox.ports.sandbox import SandboxFailed

ORPHANS = "/internal/orphans"


class OrphanJson(JsonAnswer):
    provider: str
    name: Annotated[str, meaning("the provider's own: of a container, its id")]
    session_id: Annotated[str | None, meaning("whose it was")]
    why: Annotated[str, meaning("why no session can use it, in words")]


class OrphansJson(JsonAnswer):
    orphans: list[OrphanJson]


class OrphanRoutes:
    def __init__(self, orphans: Orphans) -> None:
        self._orphans = orphans

    @route(
        "GET", ORPHANS, ADMINS, "listOrphans", "What sandboxes left behind and no session can use",
        answers={200: OrphansJson}, refusals=(503,),
    )  # fmt: skip
    async def index(self, request: Request) -> Response:
        """Asks every provider."""
        return _shown(await self._orphans.look())

    @route(
        "DELETE", ORPHANS, ADMINS, "removeOrphans", "Remove it now, even if HOLDFAST_ORPHANS is keep; lists it",
        answers={200: OrphansJson}, refusals=(502, 503),
    )  # fmt: skip
    async def remove(self, request: Request) -> Response:
        """An orphan that cannot be removed ends this; earlier removals stay."""
        try:
            return _shown(await self._orphans.remove())
        except SandboxFailed as error:
            raise ApiError(502, "sandbox_failed", str(error)) from error


def _shown(orphans: list[Orphan]) -> Response:
    shown = [OrphanJson(each.provider, each.left.name, each.left.session_id or None, each.left.why) for each in orphans]
    return answer(OrphansJson(shown))
