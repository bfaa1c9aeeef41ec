"""Every route that a gateway serves, as it is declared: suites that ask all of them find them here."""

from pathlib import Path

from gateway.app import build_house
from gateway.auth.policy import RoutePolicy
from gateway.config.settings import Secrets, SecretStr, Settings
from gateway.routing.route import RouteSpec, specs_of


def declared() -> list[RouteSpec]:
    """Nothing is opened: constructors do no I/O."""
    secret = SecretStr("x" * 32)
    secrets = Secrets(jwt_secret=secret, api_token=secret, internal_token=secret, relay_secret=secret)
    return specs_of(build_house(Settings(data_dir=Path("unused")), secrets).app.routes)


SPECS = declared()
POLICY: dict[tuple[str, str], RoutePolicy] = {(spec.method, spec.path): spec.policy for spec in SPECS}
