"""The command that a sandbox runs for the chosen agent, or the reason why there is none. Pure.

A session whose agent cannot run starts all the same: its terminals work, its files are there. In the agent's place runs
a program that answers each message with a text that says what to do (`sandbox/absent_agent.py`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gateway.agents.catalogue import ACP, CORES, DEMO, KNOWN, NODE, NODE_VERSION, NONE
from gateway.agents.choice import AgentChoice
from sandbox.ports.fleet import AGENTS
from sandbox.protocol.agent_server import AgentServer

VERSION_IN = "HOLDFAST_AGENT_VERSION"  # read by cores of agents that do not report their version
NO_AGENT = "this session has terminals only: create one with an agent to talk to"


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """`core` is one of the bridge's cores; "": its default. Paths of installed agents begin with AGENTS. `libc` is the
    one that its programs are linked to; "": they need none. With a `server` the bridge talks to the agent at that
    address, and not through pipes."""

    argv: tuple[str, ...]
    core: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    libc: str = ""
    server: AgentServer | None = None


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """One version of an agent on this machine. `program` lies below `NAME/VERSION`."""

    name: str
    version: str
    program: str
    libc: str = ""


@dataclass(frozen=True, slots=True)
class AgentGap:
    """Why an agent cannot be used. `told` says what to do about it."""

    code: str
    told: str


def needs_install(choice: AgentChoice) -> bool:
    return choice.name in KNOWN


def problem(
    choice: AgentChoice, found: InstalledAgent | None, *, has_node: bool, cores: Collection[str] = CORES
) -> AgentGap | None:
    """Why the agent cannot run; None if it can. `found` is its installed version."""
    known = KNOWN.get(choice.name)
    core = known.core if known else ACP if choice.name == ACP else "plain"
    if core not in cores:
        named = known.title if known else f"an agent that speaks {core}"
        told = f"this version of Holdfast cannot talk to {named} yet: choose another agent, or update Holdfast"
        return AgentGap("agent_not_built", told)
    if known is None:
        return None
    if found is None:
        command = f"holdfast agents install {choice.said}"
        told = f"{known.title}{' ' if choice.version else ''}{choice.version} is not installed: run `{command}`"
        return AgentGap("agent_not_installed", told)
    if known.by_node and not has_node:
        told = f"the Node.js for {known.title} is gone: run `holdfast agents install {found.name}@{found.version}`"
        return AgentGap("agent_not_installed", told)
    return None


def launch(
    choice: AgentChoice,
    found: InstalledAgent | None,
    python: str,
    *,
    has_node: bool,
    cores: Collection[str] = CORES,
) -> AgentLaunch:
    """The command for an agent. `python` runs our own programs."""
    if choice.is_plain_command:
        return AgentLaunch(choice.command, server=choice.server)
    if choice.name == DEMO:
        return AgentLaunch((python, "-m", "sandbox.demo_agent"))
    if choice.name == NONE:
        return _absent(python, "no_agent", NO_AGENT)
    if (wrong := problem(choice, found, has_node=has_node, cores=cores)) is not None:
        return _absent(python, wrong.code, wrong.told)
    if found is None:
        return AgentLaunch(choice.command, ACP)
    known = KNOWN[choice.name]
    program = f"{AGENTS}/{found.name}/{found.version}/{found.program}"
    node = (f"{AGENTS}/{NODE}/{NODE_VERSION}/bin/node",) if known.by_node else ()
    env = {**known.env, VERSION_IN: found.version}
    return AgentLaunch((*node, program, *known.arguments), known.core, env, found.libc)


def unreadable(python: str, words: str) -> AgentLaunch:
    """For a stored choice that another version wrote and this one does not know."""
    told = f"this version of Holdfast knows no agent {words}: create a session with another one, or update Holdfast"
    return _absent(python, "agent_unknown", told)


def _absent(python: str, code: str, told: str) -> AgentLaunch:
    return AgentLaunch((python, "-m", "sandbox.absent_agent", code, told))
