"""Every route that a gateway serves, as it is declared: suites that ask all of them find them here."""

from collections.abc import Sequence
from pathlib import Path

from starlette.routing import BaseRoute

from gateway.app import build_house
from gateway.auth.policy import RoutePolicy
from gateway.config.settings import Secrets, SecretStr, Settings
from gateway.routing.route import specs_of


def routes() -> Sequence[BaseRoute]:
    """Nothing is opened: constructors do no I/O."""
    secret = SecretStr("x" * 32)
    secrets = Secrets(jwt_secret=secret, api_token=secret, internal_token=secret, relay_secret=secret, vault_key=secret)
    return build_house(Settings(data_dir=Path("unused")), secrets).app.routes


ROUTES = routes()
SPECS = specs_of(ROUTES)
POLICY: dict[tuple[str, str], RoutePolicy] = {(spec.method, spec.path): spec.policy for spec in SPECS}
