"""`holdfast token`: a JWT on stdout."""

from gateway.auth.tokens import TokenError, mint
from gateway.cli.console.output import say
from gateway.config.settings import Settings, SettingsError, resolve_secrets
from gateway.config.values import positive_duration


def token(settings: Settings, *, user: str, email: str, ttl: str) -> int:
    """Print a token that this gateway accepts. Raises SettingsError for anything it would not."""
    try:
        seconds = positive_duration(ttl)
    except ValueError as error:
        raise SettingsError([f"--ttl {error}"]) from None
    try:
        say(sign(settings, user, email, seconds))
    except TokenError as error:
        raise SettingsError([error.message]) from None
    return 0


def sign(settings: Settings, user: str, email: str, seconds: float) -> str:
    """A token signed with the data directory's secret. Raises SettingsError where tokens come from elsewhere."""
    secret = resolve_secrets(settings).jwt_secret
    if secret is None:
        raise SettingsError(["HOLDFAST_JWT_JWKS_URL is set: tokens come from your identity provider, not from here"])
    return mint(secret, user, email, seconds, issuer=settings.jwt_issuer, audience=settings.jwt_audience)
