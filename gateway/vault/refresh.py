"""Fresh OAuth tokens: one request at a time for each credential, and all callers get its answer.

Tokens are refreshed EARLY_SECONDS before they end, so that a request under way does not end with them. While the token
endpoint is away, tokens that have not ended go on being used. A refusal is noted in the row: no further request is made
before a person has set another credential.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from gateway.vault.credential import Credential, OAuthTokens
from gateway.vault.errors import NeedsCredential, RefreshUnavailable
from gateway.vault.oauth import EndpointAway, GrantRefused, OAuthClient
from gateway.vault.rows import CredentialRows, Place, needed
from persistence.errors import StoreUnavailable
from persistence.user_record import SealedCredential

log = structlog.get_logger()

EARLY_SECONDS = 300.0
REST_SECONDS = 10.0  # after an attempt, before the next one for the same credential
MOST_ATTEMPTS = 1000  # remembered; above, those whose rest is over are forgotten
NO_REFRESH = "its access token has ended, and it has no refresh token"
NO_CLIENT = "its access token has ended, and this gateway knows no token endpoint for its provider"
REMOVED = "it was removed"


class Ask(Protocol):
    def __call__(
        self, client: OAuthClient, before: OAuthTokens, /
    ) -> Awaitable[OAuthTokens | GrantRefused | EndpointAway]: ...


class Refresher:
    """`clients` has the endpoint of each provider. `told` is called with the result of each request: refreshed, refused
    or away."""

    def __init__(
        self,
        rows: CredentialRows,
        clients: Mapping[str, OAuthClient],
        ask: Ask,
        *,
        told: Callable[[str], None] = lambda result: None,
    ) -> None:
        self._rows = rows
        self._clients = clients
        self._ask = ask
        self._told = told
        self._flights: dict[Place, asyncio.Task[Credential]] = {}
        self._attempts: dict[Place, tuple[float, str]] = {}  # when, and why it failed

    async def close(self) -> None:
        """Let requests under way finish: their answers are worth more than the seconds."""
        if self._flights:
            await asyncio.wait(self._flights.values())

    def is_due(self, value: OAuthTokens) -> bool:
        return value.expires_at - EARLY_SECONDS <= self._rows.utcnow()

    async def fresh(self, found: Credential) -> Credential:
        """A credential with fresh tokens in place of `found`, if they can be had: otherwise `found`, while it has not
        ended. Raises NeedsCredential, RefreshUnavailable, StoreUnavailable."""
        place = (found.user_id, found.provider)
        flight = self._flights.get(place)
        if flight is None:
            if (why := self._rests(place)) is not None:
                return self._while_it_lasts(found, why)
            name = f"refresh {found.provider}"
            flight = self._flights[place] = asyncio.create_task(self._refresh(place, found.number), name=name)
            flight.add_done_callback(lambda done: self._landed(place, done))
        return await asyncio.shield(flight)  # who leaves does not stop it for the others

    def _landed(self, place: Place, done: "asyncio.Task[Credential]") -> None:
        del self._flights[place]
        if not done.cancelled():
            done.exception()  # the waiting callers got the error, or there are none

    async def _refresh(self, place: Place, seen: int) -> Credential:
        row = await self._rows.read(place)
        if row is None:
            raise NeedsCredential(place[1], REMOVED, is_for_everybody=not place[0])
        found = self._rows.opened(row)
        if not isinstance(found.value, OAuthTokens) or (row.number != seen and not self.is_due(found.value)):
            return found  # it was set again meanwhile
        client = self._clients.get(place[1])
        if client is None or not found.value.refresh:
            return self._without_refresh(row, found.value, NO_REFRESH if client else NO_CLIENT)
        answer = await self._ask(client, found.value)
        self._note_attempt(place, answer)
        match answer:
            case OAuthTokens():
                return await self._stored(row, answer)
            case GrantRefused(why):
                return await self._refused(row, why)
        return self._while_it_lasts(found, answer.why)

    async def _stored(self, row: SealedCredential, fresh: OAuthTokens) -> Credential:
        log.info("vault.refreshed", provider=row.provider)
        now = await self._rows.put_refreshed(row, fresh)
        if now is None:
            raise needed(row, REMOVED)
        return self._rows.opened(now)

    async def _refused(self, row: SealedCredential, why: str) -> Credential:
        now = await self._rows.read((row.user_id, row.provider))
        if now is not None and now.number != row.number:  # another gateway was quicker, or a person
            return self._rows.opened(now)
        told = f"its provider refused to refresh it: {why}"
        log.warning("vault.refresh_refused", provider=row.provider, cause=why)
        try:
            await self._rows.mark(row, told)
        except StoreUnavailable:
            log.warning("vault.not_marked", provider=row.provider)  # the next request asks again
        raise needed(row, told)

    def _without_refresh(self, row: SealedCredential, value: OAuthTokens, why: str) -> Credential:
        if value.expires_at > self._rows.utcnow():
            return self._rows.opened(row)
        raise needed(row, why)

    def _while_it_lasts(self, found: Credential, why: str) -> Credential:
        if isinstance(found.value, OAuthTokens) and found.value.expires_at <= self._rows.utcnow():
            raise RefreshUnavailable(found.provider, why)
        return found

    def _rests(self, place: Place) -> str | None:
        at, why = self._attempts.get(place, (float("-inf"), ""))
        return why if self._now() - at < REST_SECONDS else None

    def _note_attempt(self, place: Place, answer: OAuthTokens | GrantRefused | EndpointAway) -> None:
        self._told({OAuthTokens: "refreshed", GrantRefused: "refused", EndpointAway: "away"}[type(answer)])
        why = answer.why if isinstance(answer, EndpointAway) else "it was refreshed a moment ago"
        if isinstance(answer, EndpointAway):
            log.warning("vault.refresh_failed", provider=place[1], cause=why)
        now = self._now()
        self._attempts[place] = (now, why)
        if len(self._attempts) > MOST_ATTEMPTS:
            self._attempts = {each: tried for each, tried in self._attempts.items() if now - tried[0] < REST_SECONDS}

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
