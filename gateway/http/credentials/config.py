"""`/api/config`: how a user's agents are configured, in all their sessions."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.agents.config import (
    A_TEXT,
    SOME_FILES,
    SOME_SETTINGS,
    AgentConfig,
    BadConfig,
    keys_in,
    read_config,
    to_agentpod,
    without_keys,
)
from gateway.auth.policy import LIFECYCLE
from gateway.egress.providers import ModelProviders
from gateway.http.access import principal
from gateway.http.credentials.credentials import canonical_name
from gateway.http.responses import answer, read_body
from gateway.protocol.errors import ApiError
from gateway.routing.bodies import bad_member
from gateway.routing.json_types import JsonAnswer, JsonBody, Time, meaning, must, schema
from gateway.routing.parameters import UserParameter
from gateway.routing.route import route
from gateway.session.user_configs import UserConfigs
from gateway.vault.credential import BadCredential, Value, read_value
from gateway.vault.errors import TooManyCredentials
from gateway.vault.vault import Vault
from persistence.record_json import iso

CONFIG = "/api/config"
LARGEST_BODY = 1 << 20
OF_USER = UserParameter("for services, which have to say it: whose")


class UserConfigBody(JsonBody):
    """All of it: what is left out is empty. `settings` may have a part for each agent under its name; keys of providers
    in it go into the vault."""

    settings: Annotated[dict[str, Any] | None, must(SOME_SETTINGS)] = None
    agents_md: Annotated[str | None, meaning("what every agent reads first"), must(A_TEXT)] = msgspec.field(
        default=None, name="agents_md"
    )
    files: Annotated[
        list[dict[str, Any]] | None,
        meaning("agents, commands, skills: each has type, name, extension, content"),
        must(SOME_FILES),
    ] = None


class ConfigFileJson(JsonAnswer):
    type: str
    name: str
    extension: str
    content: str


class ConfigJson(JsonAnswer):
    settings: dict[str, Any]
    agents_md: str = msgspec.field(name="agents_md")
    files: list[ConfigFileJson]
    config_hash: Annotated[str, meaning("SHA-256 of its canonical form"), schema(pattern="^[0-9a-f]{64}$")] = (
        msgspec.field(name="config_hash")
    )
    set_at: Time | None
    credentials: Annotated[list[str], meaning("providers whose keys were in it, and are in the vault now")]


class ConfigRoutes:
    def __init__(self, configs: UserConfigs, vault: Vault, providers: Callable[[], ModelProviders]) -> None:
        self._configs = configs
        self._vault = vault
        self._providers = providers

    @route(
        "GET", CONFIG, LIFECYCLE, "getConfig", "How a user's agents are configured",
        answers={200: ConfigJson}, parameters=(OF_USER,), refusals=(400, 403, 503),
    )  # fmt: skip
    async def get(self, request: Request) -> Response:
        config, set_at = await self._configs.read(_whose(request))
        return answer(_json(config, set_at, []))

    @route(
        "PUT", CONFIG, LIFECYCLE, "setConfig", "Configure a user's agents",
        body=UserConfigBody, answers={200: ConfigJson}, parameters=(OF_USER,), refusals=(400, 403, 409, 413, 503),
    )  # fmt: skip
    async def put(self, request: Request) -> Response:
        """Durable when it is answered. Each agent gets it with its next process."""
        whose = _whose(request)
        body = await read_body(request, UserConfigBody, most=LARGEST_BODY)
        given = {"settings": body.settings, "agents_md": body.agents_md, "files": body.files}
        try:
            config = read_config(given)
        except BadConfig as error:
            raise bad_member(error.member, error.wanted) from None
        keys = self._keys(config.settings)
        for provider, value in keys.items():
            try:
                await self._vault.put(whose, provider, value)
            except TooManyCredentials as error:
                raise ApiError(409, "too_many_credentials", str(error)) from None
        config = msgspec.structs.replace(config, settings=without_keys(config.settings))
        return answer(_json(config, await self._configs.put(whose, config), sorted(keys)))

    def _keys(self, settings: dict[str, Any]) -> dict[str, Value]:
        """What belongs into the vault, and not into a configuration that is shown. All are checked first."""
        known, found = self._providers(), dict[str, Value]()
        for name, each in to_agentpod({"provider": settings.get("provider")}, {}).items() if keys_in(settings) else ():
            if (provider := known.get(canonical_name(name))) is None:
                raise bad_member(
                    "settings.provider", f"without the key of a provider that is not known here: {name[:40]!a}"
                )
            try:
                found[provider.name] = read_value("api", key=each["key"])
            except BadCredential as error:
                raise bad_member(f"settings.provider.{provider.name}.options.apiKey", error.wanted) from None
        return found


def _whose(request: Request) -> str:
    who, named = principal(request), OF_USER.read(request)
    if who.kind == "user":
        if named not in (None, who.user_id):
            raise ApiError(403, "not_your_user", "a user token has its own configuration only; leave userId out")
        return who.user_id
    if named is None:
        raise ApiError(400, "bad_parameter", "userId must be given: a configuration is a user's")
    return named


def _json(config: AgentConfig, set_at: float | None, credentials: list[str]) -> ConfigJson:
    files = [ConfigFileJson(each.type, each.name, each.extension, each.content) for each in config.files]
    when = None if set_at is None else iso(set_at)
    return ConfigJson(config.settings, config.agents_md, files, config.hash, when, credentials)
