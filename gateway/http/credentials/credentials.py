"""`/api/credentials`: the credentials for sessions' requests to providers. Values go in, and never come out again."""

from collections.abc import Callable
from typing import Annotated

import structlog
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import ADMINS, LIFECYCLE
from gateway.auth.tokens import Principal
from gateway.config.settings import SettingsError
from gateway.egress.providers import ModelProvider, ModelProviders
from gateway.http.access import principal
from gateway.http.responses import answer, read_body
from gateway.protocol.errors import ApiError
from gateway.routing.bodies import bad_member
from gateway.routing.json_types import JsonAnswer, JsonBody, Time, Whole, meaning, must, one_of
from gateway.routing.parameters import Parameter, UserParameter
from gateway.routing.route import route
from gateway.vault.credential import (
    A_KEY,
    A_PRIVATE_KEY,
    AN_APP_ID,
    AN_EXPIRY,
    EVERYBODY,
    KINDS,
    LONGEST_KEY,
    LONGEST_PRIVATE_KEY,
    BadCredential,
    Value,
    read_value,
)
from gateway.vault.errors import TooManyCredentials
from gateway.vault.keeper import KeyIsSet, VaultKeeper
from gateway.vault.vault import ListedCredential
from persistence.record_json import iso

log = structlog.get_logger()

ALL, ONE = "/api/credentials", "/api/credentials/{provider}"
LARGEST_BODY = 64 * 1024
ALIASES = {"gemini": "google"}  # as agents call them
A_TYPE = f"one of {', '.join(KINDS)}"
OF_USER = UserParameter("for services: whose; left out: everybody's, by the API token alone")
PROVIDER = Parameter("provider", {"type": "string"}, "a name that `GET /api/credentials` lists", where="path")

Word = Annotated[Annotated[str, Meta(max_length=LONGEST_KEY)] | None, must(A_KEY)]


class NewCredentialBody(JsonBody):
    """`api` takes `key`; `oauth` takes `access`, and if it can be refreshed `refresh` and `expires`; `app`, an app of a
    git host, takes `appId` and `privateKey`."""

    type: Annotated[str, one_of(*KINDS), must(A_TYPE)]
    key: Word = None
    access: Word = None
    refresh: Word = None
    expires: Annotated[float | None, meaning(AN_EXPIRY), must(AN_EXPIRY)] = None
    app_id: Annotated[str | None, must(AN_APP_ID)] = None
    private_key: Annotated[Annotated[str, Meta(max_length=LONGEST_PRIVATE_KEY)] | None, must(A_PRIVATE_KEY)] = None


class CredentialJson(JsonAnswer):
    provider: str
    type: Annotated[str, one_of(*KINDS)]
    set_at: Time
    everybody: Annotated[bool, meaning("it is the operator's, for all users who have none of their own")]
    problem: Annotated[str | None, meaning("why it cannot be used; null while it can")]


class CredentialsJson(JsonAnswer):
    credentials: list[CredentialJson]
    providers: Annotated[list[str], meaning("for which there can be one")]


class DeletedCredential(JsonAnswer):
    provider: str


class ResealedJson(JsonAnswer):
    sealed: Annotated[Whole, meaning("credentials that were sealed with the new key")]


class CredentialRoutes:
    """`providers` returns the ones there are; `changed` is called with the user whose credentials have changed."""

    def __init__(
        self,
        keeper: VaultKeeper,
        providers: Callable[[], ModelProviders],
        *,
        changed: Callable[[str], None] = lambda user_id: None,
    ) -> None:
        self._keeper = keeper
        self._vault = keeper.vault
        self._providers = providers
        self._changed = changed

    @route(
        "GET", ALL, LIFECYCLE, "listCredentials", "A user's credentials, and everybody's, without values",
        answers={200: CredentialsJson}, parameters=(OF_USER,), refusals=(400, 403, 503),
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        """By provider, type and the time when each was set. No route returns a value."""
        whose = _whose(request)
        found = [_json(each, everybody=whose == EVERYBODY) for each in await self._vault.list(whose)]
        if whose != EVERYBODY:
            own = {each.provider for each in found}
            theirs = [each for each in await self._vault.list(EVERYBODY) if each.provider not in own]
            found += [_json(each, everybody=True) for each in theirs]
        return answer(CredentialsJson(found, sorted(self._providers().by_name)))

    @route(
        "PUT", ONE, LIFECYCLE, "setCredential", "Keep a credential, in place of the one there is",
        body=NewCredentialBody, answers={200: CredentialJson}, parameters=(PROVIDER, OF_USER),
        refusals=(400, 403, 404, 409, 413, 503),
    )  # fmt: skip
    async def put(self, request: Request) -> Response:
        """The credential is durable when this answers. Requests of a session's agent use it from the next one on."""
        whose, provider = _whose(request), self._named(request)
        value = _value(await read_body(request, NewCredentialBody, most=LARGEST_BODY), provider)
        _note("set", principal(request), whose, provider.name)
        try:
            kept = await self._vault.put(whose, provider.name, value)
        except TooManyCredentials as error:
            raise ApiError(409, "too_many_credentials", str(error)) from None
        self._changed(whose)
        return answer(_json(kept, everybody=whose == EVERYBODY))

    @route(
        "DELETE", ONE, LIFECYCLE, "deleteCredential", "Remove a credential",
        answers={200: DeletedCredential}, parameters=(PROVIDER, OF_USER), refusals=(400, 403, 404, 503),
    )  # fmt: skip
    async def delete(self, request: Request) -> Response:
        """No request uses it from then on. A credential of a provider that is not known any more can be removed,
        too."""
        whose = _whose(request)
        name = canonical_name(request.path_params["provider"])
        _note("delete", principal(request), whose, name if self._providers().get(name) else "")
        if not await self._vault.delete(whose, name):
            raise ApiError(404, "no_credential", "there is no credential for that provider")
        self._changed(whose)
        return answer(DeletedCredential(name))

    @route(
        "POST", "/api/credentials/rotate", ADMINS, "rotateVaultKey", "Make another vault key, and seal everything anew",
        answers={200: ResealedJson}, refusals=(409, 503),
    )  # fmt: skip
    async def rotate(self, request: Request) -> Response:
        """A rotation that is cut off continues by itself. A key in HOLDFAST_VAULT_KEY is the operator's to replace:
        409."""
        try:
            return answer(ResealedJson(await self._keeper.rotate()))
        except KeyIsSet as error:
            raise ApiError(409, "key_is_set", str(error)) from None
        except (OSError, SettingsError) as error:
            raise ApiError(503, "no_key", f"the key cannot be replaced now: {error}") from None

    def _named(self, request: Request) -> ModelProvider:
        known = self._providers()
        found = known.get(canonical_name(request.path_params["provider"]))
        if found is None:
            told = f"there is no such provider; known are {', '.join(sorted(known.by_name))}"
            raise ApiError(404, "unknown_provider", told)
        return found


def _whose(request: Request) -> str:
    """The user for a user's request. A service names a user, or means the operator's credentials, which need the API
    token."""
    who = principal(request)
    named = OF_USER.read(request)
    if who.kind == "user":
        if named not in (None, who.user_id):
            raise ApiError(403, "not_your_user", "a user token has its own credentials only; leave userId out")
        return who.user_id
    if named is None and who.kind != "admin":
        raise ApiError(403, "not_yours", "everybody's credentials are for the API token alone: name a user by userId")
    return named or EVERYBODY


def canonical_name(name: str) -> str:
    return ALIASES.get(name, name)


def _value(body: NewCredentialBody, provider: ModelProvider) -> Value:
    try:
        value = read_value(
            body.type, key=body.key, access=body.access, refresh=body.refresh, expires=body.expires,
            app_id=body.app_id, private_key=body.private_key,
        )  # fmt: skip
    except BadCredential as error:
        raise bad_member(error.member, error.wanted) from None
    if body.type == "app" and not provider.is_git_host:
        raise bad_member("type", f"api or oauth: {provider.name} is no git host, and has no apps")
    return value


def _json(kept: ListedCredential, *, everybody: bool) -> CredentialJson:
    return CredentialJson(kept.provider, kept.kind, iso(kept.set_at), everybody, kept.trouble or None)


def _note(what: str, who: Principal, user_id: str, provider: str) -> None:
    """Log who did what to which credential: no text that a user may choose freely is in it."""
    log.info("credential.asked", what=what, by=who.kind, user_id=user_id, provider=provider)
