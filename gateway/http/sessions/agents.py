"""The agents that a session may have here, and why others are not available."""

import asyncio
from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from gateway.agents.agents import Agents, ListedAgent
from gateway.auth.policy import LIFECYCLE
from gateway.http.responses import answer
from gateway.routing.json_types import JsonAnswer, meaning
from gateway.routing.route import route


class AgentJson(JsonAnswer):
    name: Annotated[str, meaning("the value of `agent` at create")]
    title: str
    version: Annotated[str | None, meaning("the version that Holdfast was tested with; null: it is built in")]
    installed: list[str]
    current: Annotated[str | None, meaning("the version that sessions get")]
    available: bool
    reason: Annotated[str | None, meaning("why it cannot be chosen, with the command that fixes it")]


class AgentList(JsonAnswer):
    agents: list[AgentJson]
    default: Annotated[str, meaning("of sessions that name none")]


class AgentRoutes:
    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    @route(
        "GET", "/api/agents", LIFECYCLE, "listAgents", "Which agents a session may have, and why others not",
        answers={200: AgentList},
    )  # fmt: skip
    async def list(self, request: Request) -> Response:
        """A new installation counts at once: no restart."""
        listed = await asyncio.to_thread(self._agents.listed)
        # A command may contain secrets.
        default = self._agents.default
        return answer(AgentList([_shown(agent) for agent in listed], default.name or "a command"))


def _shown(agent: ListedAgent) -> AgentJson:
    version, current = agent.version or None, agent.current or None
    reason = None if agent.gap is None else agent.gap.told
    return AgentJson(agent.name, agent.title, version, agent.installed, current, agent.gap is None, reason)
