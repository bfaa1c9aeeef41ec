"""`holdfast url`: a fresh link to sign in with, on stdout."""

import json

from gateway.cli.client.api import CommandFailed, GatewayApi, find_gateway
from gateway.cli.client.login import whoever
from gateway.cli.console.output import say
from gateway.config.settings import Settings, resolve_secrets
from gateway.protocol.text import visible_line


async def url(settings: Settings, *, user: str | None, email: str | None, at: str | None, as_json: bool) -> int:
    """Ask the gateway at `at` (the one on this data directory) for a link, and print it. Raises CommandFailed."""
    token = resolve_secrets(settings).api_token.get_secret_value()
    name, address = whoever(user, email)
    async with GatewayApi(find_gateway(settings, at), lambda: {"Authorization": f"Bearer {token}"}) as api:
        try:
            made = await api.ask("POST", "/api/links", json={"userId": name, "email": address})
        except CommandFailed as failure:
            raise _explained(failure) from failure
    say(json.dumps(made) if as_json else visible_line(str(made["url"])))
    return 0


def _explained(failure: CommandFailed) -> CommandFailed:
    hints = {
        "bad_credentials": "set HOLDFAST_API_TOKEN, or HOLDFAST_DATA_DIR, to that gateway's own",
        "no_tokens": "sign in on its page with a token of your identity provider",
    }
    hint = hints.get(failure.code)
    return CommandFailed(f"{failure}; {hint}", failure.code) if hint else failure
