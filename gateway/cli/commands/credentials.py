"""Who a command speaks for: a token that was given, or a fresh one for whoever sits here."""

from collections.abc import Callable

from gateway.cli.client.api import CommandFailed
from gateway.cli.client.login import whoever
from gateway.config.settings import Settings, SettingsError

TOKEN_SECONDS = 3600


def token_source(settings: Settings, *, token: str | None, user: str | None, email: str | None) -> Callable[[], str]:
    """A token for each time it is asked: the one given, or a fresh one, signed with the data directory's secret."""
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
