"""Reports to the gateway's end of the proxy that sessions' sandboxes run, and that they have ended."""

import socket
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gateway.egress.keeper import EgressKeeper
from gateway.egress.policy import Policy, read_text
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Sandbox, SandboxUnavailable

# Where each sandbox has a loopback of its own, and its bridge can hand a listener out.
LEVELS = ("contained", "container")

RoutesOf = Callable[[str, str], Mapping[str, msgspec.Raw]]  # settings of the proxy's own routes, by session and user


class EgressAccess:
    """Implements gateway.session.model.ports.WayOut."""

    def __init__(self, keeper: EgressKeeper, routes: RoutesOf = lambda session, user: {}) -> None:
        self._keeper = keeper
        self.routes = routes

    def opened(self, session_id: str, user_id: str, network: str, sandbox: Sandbox) -> None:
        if sandbox.level not in LEVELS:
            return

        async def give() -> socket.socket | None:
            try:
                return await sandbox.egress()
            except (LinkRefused, SandboxUnavailable) as error:
                raise OSError(str(error)) from error

        routes = dict(self.routes(session_id, user_id))
        self._keeper.attach(Policy(session_id, user_id, read_text(network), routes), give)

    def ended(self, session_id: str) -> None:
        self._keeper.take_away(session_id)

    def found(self, running: Iterable[str]) -> None:
        self._keeper.keep(running)
