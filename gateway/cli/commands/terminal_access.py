"""The way of a command to one terminal of a session."""

import random
from dataclasses import dataclass
from typing import Any

from gateway.cli.client.api import CommandFailed, GatewayApi, find_gateway
from gateway.cli.client.terminal import TerminalClient
from gateway.cli.client.terminal_view import TerminalView
from gateway.cli.commands.credentials import token_source
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line
from sandbox.protocol.terminal import Role, Size
from sandbox.protocol.values import Position

# The statuses in which a session has no terminals, with advice.
_CLOSED = {
    "paused": "is paused: resume it first, with `holdfast sessions resume {id}`",
    "needs_env": "needs its variables again: `holdfast sessions resume {id} --env NAME=VALUE`",
    "archived": "is archived: `holdfast sessions create {id}` revives it",
}


@dataclass(frozen=True, slots=True)
class TerminalChoice:
    """Which terminal, and for whom."""

    session_id: str
    name: str
    url: str | None
    token: str | None
    user: str | None
    email: str | None


class TerminalAccess:
    """Access to one terminal. Raises CommandFailed with advice where there is none."""

    def __init__(self, settings: Settings, chosen: TerminalChoice) -> None:
        self._chosen = chosen
        self._token = token_source(settings, token=chosen.token, user=chosen.user, email=chosen.email)
        self._url = find_gateway(settings, chosen.url)
        self._path = f"/api/sandboxes/{chosen.session_id}"

    def api(self) -> GatewayApi:
        return GatewayApi(self._url, lambda: {"Authorization": f"Bearer {self._token()}"})

    async def check(self, api: GatewayApi) -> None:
        """Raises CommandFailed unless the session exists, and runs or can be woken."""
        try:
            session = await api.ask("GET", self._path)
        except CommandFailed as failure:
            if failure.code == "unknown_session":
                raise CommandFailed(
                    f"{failure}; if it is another user's, say whose with --user", failure.code
                ) from None
            raise
        if (why := _CLOSED.get(str(session.get("status")))) is not None:
            reason = f" ({visible_line(str(session['reason']))})" if session.get("reason") else ""
            raise CommandFailed(f"the session {why.format(id=self._chosen.session_id)}{reason}")

    async def terminals(self, api: GatewayApi) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await api.ask("GET", f"{self._path}/terminals"))["terminals"]
        return listed

    async def terminal(self, api: GatewayApi) -> dict[str, Any] | None:
        """The terminal as it is listed; None if there is none yet."""
        return next((each for each in await self.terminals(api) if each["name"] == self._chosen.name), None)

    async def ended_epoch(self, api: GatewayApi) -> str:
        """The process that the terminal had, if it has ended; "" otherwise."""
        listed = await self.terminal(api)
        return "" if listed is None or listed["alive"] else str(listed["epoch"])

    async def wake(self, api: GatewayApi) -> None:
        await api.ask("POST", f"{self._path}/wake")

    def link(self, role: Role, size: Size | None, after: Position | None = None) -> TerminalClient:
        viewer = TerminalView(self._chosen.name, role, size, after)
        return TerminalClient(self._url, self._chosen.session_id, self._token, viewer, rng=random.Random())
