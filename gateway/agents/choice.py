"""An agent as settings, requests and people name it. Pure.

`demo`, a name of the catalogue, perhaps with `@VERSION`, `acp:COMMAND`, `none`, `ws://HOST:PORT COMMAND` for a program
that listens there, or else the command line of a program that speaks chat frames. Between the address and the command
of a server may stand `health=PATH`.
"""

import re
import shlex
from dataclasses import dataclass

from gateway.agents.catalogue import ACP, DEMO, KNOWN, NAMES, NONE
from sandbox.protocol.agent_server import AgentServer, BadServer, read_server

VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]{0,63}", re.ASCII)
WANTED = f"one of {', '.join(NAMES)}, acp:COMMAND, ws://HOST:PORT COMMAND, or a command line"
_ACP = f"{ACP}:"
_SERVER, _HEALTH = "ws://", "health="
_PROGRAMS = {agent.program: agent.name for agent in KNOWN.values()}


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """Either `command`, which runs as it is with the core of that name, or the `name` of an agent. `version` is the one
    asked for; "": the current one. A command with a `server` listens there."""

    name: str = ""
    version: str = ""
    command: tuple[str, ...] = ()
    server: AgentServer | None = None

    @property
    def said(self) -> str:
        """As people write it."""
        if self.command:
            return (_ACP if self.name == ACP else self._server_said) + shlex.join(self.command)
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def _server_said(self) -> str:
        if self.server is None:
            return ""
        words = [self.server.connect, *([_HEALTH + self.server.health] if self.server.health else [])]
        return f"{shlex.join(words)} "

    @property
    def is_plain_command(self) -> bool:
        return not self.name


DEMO_CHOICE = AgentChoice(DEMO)


def read_choice(text: str) -> AgentChoice:
    """Parse a choice. Raises ValueError with the expected form, as the end of a sentence that begins with `agent
    ...`."""
    words = text.strip()
    if words.startswith(_ACP):
        return AgentChoice(ACP, command=_split(words.removeprefix(_ACP), "a command behind acp:"))
    if words.startswith(_SERVER):
        return _read_server(_split(words, WANTED))
    name, at, version = words.partition("@")
    if name in NAMES and (at or not version):
        if not at:
            return AgentChoice(name)
        if name in (DEMO, NONE):
            raise ValueError(f"wants {name} without a version")
        if not VERSION.fullmatch(version):
            raise ValueError(f"wants {name}@VERSION, such as {name}@{KNOWN[name].version}")
        return AgentChoice(name, version)
    if (meant := _PROGRAMS.get(words)) is not None:
        raise ValueError(f"wants {meant}: {words} is the name of its program")
    return AgentChoice(command=_split(words, WANTED))


def _read_server(words: tuple[str, ...]) -> AgentChoice:
    connect, *command = words
    health = command.pop(0).removeprefix(_HEALTH) if command and command[0].startswith(_HEALTH) else ""
    try:
        server = read_server(connect, health)
    except BadServer as error:
        raise ValueError(f"wants as {error.member}: {error.wanted}") from None
    if not (command and command[0]):
        raise ValueError(f"wants the command of the server behind {connect}")
    return AgentChoice(command=tuple(command), server=server)


def of_command(command: tuple[str, ...]) -> AgentChoice:
    """A command given word by word is a command, whatever its first word is."""
    return AgentChoice(command=command)


def _split(words: str, wanted: str) -> tuple[str, ...]:
    try:
        found = tuple(shlex.split(words))
    except ValueError as error:
        raise ValueError(f"wants a command line ({error})") from None
    if not found or not found[0]:
        raise ValueError(f"wants {wanted}")
    return found
