"""An agent as settings, requests and people name it. Pure.

`demo`, a name of the catalogue, perhaps with `@VERSION`, `acp:COMMAND`, `none`, or else the command line of a program
that speaks chat frames.
"""

import re
import shlex
from dataclasses import dataclass

from gateway.agents.catalogue import ACP, DEMO, KNOWN, NAMES, NONE

VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]{0,63}", re.ASCII)
WANTED = f"one of {', '.join(NAMES)}, acp:COMMAND, or a command line"
_ACP = f"{ACP}:"
_PROGRAMS = {agent.program: agent.name for agent in KNOWN.values()}


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """Either `command`, which runs as it is with the core of that name, or the `name` of an agent. `version` is the one
    asked for; "": the current one."""

    name: str = ""
    version: str = ""
    command: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """As people write it."""
        if self.command:
            return (_ACP if self.name == ACP else "") + shlex.join(self.command)
        return f"{self.name}@{self.version}" if self.version else self.name

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
