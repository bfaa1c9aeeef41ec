"""The agents that sessions may have here: the known ones, and the installed ones."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gateway.agents.catalogue import CORES, DEMO, KNOWN, NONE
from gateway.agents.choice import DEMO_CHOICE, AgentChoice, read_choice
from gateway.agents.launch import AgentGap, AgentLaunch, InstalledAgent, launch, needs_install, problem, unreadable
from gateway.agents.shelf import AgentShelf
from sandbox.protocol.agent_server import BadServer, read_server
from sandbox.system.interpreter import PYTHON

TITLES = {DEMO: "Demo agent, built in", NONE: "No agent: terminals only"}


@dataclass(frozen=True, slots=True)
class ListedAgent:
    """`gap` says why it cannot be chosen; None: it can. `version` is the one that Holdfast was tested with."""

    name: str
    title: str
    version: str
    installed: list[str]
    current: str
    gap: AgentGap | None


class Agents:
    """`default` is for sessions that name none, `cores` are the bridge's. Without a shelf no agent is installed."""

    def __init__(
        self, default: AgentChoice = DEMO_CHOICE, shelf: AgentShelf | None = None, cores: Collection[str] = CORES
    ) -> None:
        self.default = default
        self._shelf = shelf
        self._cores = cores

    def launch(
        self, command: tuple[str, ...] | None, name: str | None, server: Mapping[str, str] | None = None
    ) -> AgentLaunch:
        """The program that a sandbox runs for a session with that `command`, or with the agent of that `name`. The
        command may be a `server`: members of an AgentServer."""
        if command and server is not None:
            try:
                return AgentLaunch(command, server=read_server(server.get("connect"), server.get("health", "")))
            except BadServer:
                return unreadable(PYTHON, f"at {server.get('connect')}")
        if command:
            return AgentLaunch(command)
        try:
            choice = self.default if name is None else read_choice(name)
        except ValueError:
            return unreadable(PYTHON, str(name))
        found, has_node = self._found(choice)
        return launch(choice, found, PYTHON, has_node=has_node, cores=self._cores)

    def unavailable(self, name: str | None) -> AgentGap | None:
        """Why a session may not be created with the agent of that name. None without a name: a default that is not
        installed is reported in the session instead."""
        return None if name is None else self.problem(read_choice(name))

    def problem(self, choice: AgentChoice) -> AgentGap | None:
        """Why sessions cannot talk to it; None if they can."""
        found, has_node = self._found(choice)
        return problem(choice, found, has_node=has_node, cores=self._cores)

    def listed(self) -> list[ListedAgent]:
        """Every known name. Looks at the disk."""
        return [self._listed(name) for name in (DEMO, *KNOWN, NONE)]

    def _listed(self, name: str) -> ListedAgent:
        known = KNOWN.get(name)
        wrong = self.problem(AgentChoice(name))
        if known is None:
            return ListedAgent(name, TITLES[name], "", [], "", wrong)
        found = self._shelf.versions(name) if self._shelf else []
        current = self._shelf.current(name) if self._shelf and found else ""
        return ListedAgent(name, known.title, known.version, found, current, wrong)

    def _found(self, choice: AgentChoice) -> tuple[InstalledAgent | None, bool]:
        if self._shelf is None or not needs_install(choice):
            return None, False
        return self._shelf.find(choice.name, choice.version), self._shelf.has_node
