"""Reports to the gateway's end of the proxy that sessions' sandboxes run, and that they have ended."""

import socket
from collections.abc import Collection, Iterable

from gateway.agents.model_access import PROXY, model_access
from gateway.egress.keeper import EgressKeeper
from gateway.egress.model_gateway import ModelGateway
from gateway.egress.policy import Policy, read_text
from gateway.egress.repositories import git_config, repository_of
from gateway.egress.way import WayInside, WayWanted
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Sandbox, SandboxUnavailable

# Where each sandbox has a loopback of its own, and its bridge can hand a listener out.
LEVELS = ("contained", "container")


class EgressAccess:
    """Implements gateway.session.model.ports.WayOut."""

    def __init__(self, keeper: EgressKeeper, models: ModelGateway, given: Collection[str] = ()) -> None:
        """`given` are the names of variables that every sandbox gets from the operator."""
        self._keeper = keeper
        self._models = models
        self._given = frozenset(given)

    async def inside(self, user_id: str, level: str, given: Collection[str], repo_url: str | None) -> WayInside:
        key = await self._models.clone_key(user_id, repo_url) if repo_url is not None else ""
        if level not in LEVELS:
            return WayInside(clone_key=key)
        access = model_access(await self._models.providers_of(user_id), {*given, *self._given})
        repository = repository_of(repo_url) if repo_url is not None else None
        git = {} if repository is None else git_config(repository, PROXY)
        return WayInside({**git, **access.env}, access.files, key)

    def opened(self, session_id: str, user_id: str, wanted: WayWanted, sandbox: Sandbox) -> None:
        if sandbox.level not in LEVELS:
            return

        async def give() -> socket.socket | None:
            try:
                return await sandbox.egress()
            except (LinkRefused, SandboxUnavailable) as error:
                raise OSError(str(error)) from error

        routes = self._models.routes(session_id, user_id, wanted.limit, wanted.repo_url)
        self._keeper.attach(Policy(session_id, user_id, read_text(wanted.network), routes), give)

    def ended(self, session_id: str) -> None:
        self._keeper.take_away(session_id)

    def found(self, running: Iterable[str]) -> None:
        self._keeper.keep(running)
