"""A command's credentials: the given token, or a fresh one for the user of this machine."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.cli.client.api import CommandFailed, GatewayApi, find_gateway
from gateway.cli.client.login import whoever
from gateway.config.settings import Settings, SettingsError, resolve_secrets

TOKEN_SECONDS = 3600


def token_source(settings: Settings, *, token: str | None, user: str | None, email: str | None) -> Callable[[], str]:
    """Returns a function that yields the given token, or a fresh one each time, signed with the data directory's
    secret."""
    if token is not None:
        given = token
        return lambda: given
    from gateway.auth.tokens import TokenError
    from gateway.cli.commands.token import sign

    name, address = whoever(user, email)
    try:
        sign(settings, name, address, TOKEN_SECONDS)
    except TokenError as error:
        raise CommandFailed(f"--user or --email: {error.message}") from None
    except SettingsError as error:
        raise CommandFailed(f"{error.problems[0]}; give one with --token") from None
    return lambda: sign(settings, name, address, TOKEN_SECONDS)


@asynccontextmanager
async def service_api(settings: Settings, url: str | None, token: str | None) -> AsyncIterator[GatewayApi]:
    """The gateway at `url`, asked with `token`, or with the API token of the data directory. Raises CommandFailed."""
    chosen = resolve_secrets(settings).api_token.get_secret_value() if token is None else token
    try:
        async with GatewayApi(find_gateway(settings, url), lambda: {"Authorization": f"Bearer {chosen}"}) as api:
            yield api
    except CommandFailed as failure:
        if failure.code == "bad_credentials" or (token is None and failure.code.startswith("token_")):
            hint = "set HOLDFAST_API_TOKEN, or HOLDFAST_DATA_DIR, to that gateway's own, or give a --token"
            raise CommandFailed(f"{failure}; {hint}", failure.code) from failure
        raise
