"""`holdfast credentials`: lists, sets and removes credentials in the running gateway's vault. A value is read here and
sent, and never shown.
"""

import asyncio
import json
import os
import sys
import termios
from dataclasses import dataclass
from typing import Any

from gateway.cli.client.api import CommandFailed
from gateway.cli.client.login import whoever
from gateway.cli.commands.credentials import service_api
from gateway.cli.console.output import say
from gateway.cli.console.tables import print_table
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line

LONGEST = 64 * 1024
ALL = "/api/credentials"


@dataclass(frozen=True, slots=True)
class VaultChoice:
    """The gateway, the caller's credentials, and the user whose credentials are meant."""

    url: str | None
    token: str | None
    user: str | None
    everybody: bool
    as_json: bool

    def query(self) -> dict[str, str]:
        """The query that names the owner of the credentials. Raises CommandFailed."""
        is_jwt = self.token is not None and self.token.count(".") == 2
        if is_jwt and self.everybody:
            raise CommandFailed("everybody's credentials are for the API token: leave --token out, or give that one")
        if self.everybody or (is_jwt and self.user is None):
            return {}
        if self.user is not None:
            return {"userId": self.user}
        if self.token is not None:
            raise CommandFailed("with an API token say whose they are: --user NAME, or --everybody")
        return {"userId": whoever(None, None)[0]}


async def list_credentials(settings: Settings, chosen: VaultChoice) -> int:
    async with service_api(settings, chosen.url, chosen.token) as api:
        found = await api.ask("GET", ALL, params=chosen.query())
    if chosen.as_json:
        for each in found["credentials"]:
            say(json.dumps(each))
    elif found["credentials"]:
        print_table([("PROVIDER", "TYPE", "SET", "FOR", "PROBLEM"), *map(_row, found["credentials"])])
    else:
        say(f"no credentials; there can be some for {', '.join(found['providers'])}")
    return 0


async def set_credential(
    settings: Settings, chosen: VaultChoice, provider: str, *, env: str | None, app_id: str | None
) -> int:
    query = chosen.query()
    body = body_of(await asyncio.to_thread(read_value, provider, env), app_id)
    async with service_api(settings, chosen.url, chosen.token) as api:
        kept = await api.ask("PUT", f"{ALL}/{provider}", params=query, json=body)
    whose = "everybody" if kept["everybody"] else query.get("userId", "you")
    say(
        json.dumps(kept)
        if chosen.as_json
        else f"the credential for {kept['provider']} is kept, for {visible_line(whose)}"
    )
    return 0


async def delete_credential(settings: Settings, chosen: VaultChoice, provider: str) -> int:
    async with service_api(settings, chosen.url, chosen.token) as api:
        gone = await api.ask("DELETE", f"{ALL}/{provider}", params=chosen.query())
    say(json.dumps(gone) if chosen.as_json else f"the credential for {gone['provider']} is removed")
    return 0


async def rotate_key(settings: Settings, *, url: str | None, as_json: bool) -> int:
    async with service_api(settings, url, None) as api:
        done = await api.ask("POST", f"{ALL}/rotate")
    say(
        json.dumps(done) if as_json else f"another vault key is in use; {done['sealed']} credentials are sealed with it"
    )
    return 0


def read_value(provider: str, env: str | None) -> str:
    """From the variable, from a person at a terminal, or else all of stdin. Raises CommandFailed."""
    if env is not None:
        if not (value := os.environ.get(env)):
            raise CommandFailed("the variable that --env names is not set, or is empty")
        return value.strip()
    if sys.stdin.isatty():
        value = asked_unseen(f"credential for {provider} (not shown): ")
    else:
        try:
            value = sys.stdin.buffer.read(LONGEST + 1).decode()
        except UnicodeDecodeError:
            raise CommandFailed("stdin is no text") from None
    if len(value) > LONGEST:
        raise CommandFailed(f"the value is longer than {LONGEST} bytes")
    if not value.strip():
        raise CommandFailed("no value was given")
    return value.strip()


def asked_unseen(question: str) -> str:
    """A line from the person at stdin, without echo. Keys typed before the question count, too."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    unseen = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, unseen)
        return sys.stdin.readline()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stderr.write("\n")


def body_of(value: str, app_id: str | None) -> dict[str, Any]:
    """The body for the gateway: a key, an object with OAuth tokens, or an app's private key. Raises CommandFailed."""
    if app_id is not None:
        return {"type": "app", "appId": app_id, "privateKey": f"{value}\n"}
    if not value.startswith("{"):
        return {"type": "api", "key": value}
    try:
        body = json.loads(value)
    except ValueError:
        raise CommandFailed(
            'the value begins with { and is no JSON, such as {"access": "...", "refresh": "..."}'
        ) from None
    return {"type": "oauth" if "access" in body else "api", **body}


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    whose = "everybody" if each["everybody"] else "the user"
    return each["provider"], each["type"], each["setAt"], whose, visible_line(each["problem"] or "-")
