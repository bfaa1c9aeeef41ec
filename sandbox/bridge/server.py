"""What a bridge has and does, for requests of every route.

The code for trees and terminals is loaded with the first request for one: bridges start often, and most stay small.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sandbox.bridge.agent.agent import Agent
from sandbox.bridge.agent.link import AgentLink, AgentLinkServer
from sandbox.bridge.base.config import Config
from sandbox.bridge.watch import Watch
from sandbox.system.child import kill_descendants

if TYPE_CHECKING:
    from sandbox.bridge.terminal.routes import Terminals
    from sandbox.bridge.tree.routes import Transfers
    from sandbox.bridge.tree.socket import Trees, TreeSocket

END_SECONDS = 1.0  # for the last output of an ended agent


class Bridge:
    """Everything a sandbox offers. `busy` is whether a gateway is attached or waits for an answer."""

    def __init__(self, config: Config, agent: Agent) -> None:
        self.config = config
        self.agent = agent
        self.door = AgentLinkServer(agent, config.limits)
        self._worker = ThreadPoolExecutor(1, "tree")
        self._watch = Watch(config.kept, config.limits, self._worker, lambda: agent.alive, self.door.tell_changed)
        self.door.on_attach = self._watch.begin
        self._trees: Trees | None = None
        self._transfers: Transfers | None = None
        self._terminals: Terminals | None = None
        self._requests = 0
        self.on_idle: Callable[[], None] = lambda: None

    @property
    def busy(self) -> bool:
        return self.door.attached or self._requests > 0

    @property
    def health(self) -> dict[str, object]:
        return {"status": "ok", "incarnation": self.config.incarnation, "agent": self.agent.health}

    def attach(self, transport: asyncio.Transport, early: bytes) -> Coroutine[Any, Any, None]:
        """Give a connection to the link, at once: more bytes of it may be read before a task runs. To be awaited:
        speaks with this gateway until it goes, is replaced, or breaks the rules."""
        link = self.door.expect()
        link.take(transport, early)
        return self._speak(link)

    async def _speak(self, link: AgentLink) -> None:
        async with self.present():
            await link.gone

    async def end_programs(self) -> None:
        """End the agent and the terminals, each in its own order; then tell the gateway, and let it go."""
        if self._terminals is not None:
            await asyncio.gather(self.agent.end(), self._terminals.close())
        else:
            await self.agent.end()
        kill_descendants()  # processes that left their group may hold the agent's output open
        await self.agent.finished(END_SECONDS)
        await self.door.close()

    def close(self) -> None:
        self._watch.end()

    def load_terminals(self) -> "Terminals":
        if self._terminals is None:
            from sandbox.bridge.terminal.routes import Terminals

            self._terminals = Terminals(self.config, self.agent)
        return self._terminals

    async def _end_terminals(self) -> None:
        if self._terminals is not None:
            await self._terminals.end_programs()

    async def serve_tree(self, socket: "TreeSocket") -> None:
        async with self.present():
            await (await self._load_trees()).serve(socket)

    async def load_transfers(self) -> "Transfers":
        if self._transfers is None:
            trees = await self._load_trees()
            kind = await asyncio.get_running_loop().run_in_executor(self._worker, _transfers)
            if self._transfers is None:  # another request may have loaded it meanwhile
                self._transfers = kind(*self._for_trees, trees)
        return self._transfers

    async def _load_trees(self) -> "Trees":
        if self._trees is None:
            kind = await asyncio.get_running_loop().run_in_executor(self._worker, _trees)
            if self._trees is None:
                self._trees = kind(*self._for_trees)
        return self._trees

    @property
    def _for_trees(self) -> "tuple[Config, Agent, Executor, Callable[[], None], Callable[[], Awaitable[None]]]":
        return self.config, self.agent, self._worker, self._watch.begin_anew, self._end_terminals

    @contextlib.asynccontextmanager
    async def present(self) -> AsyncIterator[None]:
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            if not self.busy:
                self.on_idle()


def _trees() -> "type[Trees]":
    from sandbox.bridge.tree.socket import Trees

    return Trees


def _transfers() -> "type[Transfers]":
    from sandbox.bridge.tree.routes import Transfers

    return Transfers
