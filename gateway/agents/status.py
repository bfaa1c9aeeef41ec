"""The status of a session's agent: its name, version and model, and its present activity. Pure.

An agent reports these in `agent_status` frames, at any time and in any number. The last report counts, also while the
agent does not run.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, get_args

TOLD = ("name", "version", "session", "model", "mode")  # members of `agent_status` that are remembered
LONGEST = 200  # characters of each
Mode = Literal["ask", "edits", "all", "plan"]
MODES = get_args(Mode)


class AgentState(StrEnum):
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    ASKING = "asking"
    RETRYING = "retrying"
    DEAD = "dead"


def told(known: Mapping[str, str], frame: Mapping[str, Any]) -> Mapping[str, str]:
    """The members known after this `agent_status`: `known` itself if nothing has changed."""
    said = {name: frame[name] for name in TOLD if isinstance(frame.get(name), str)}
    new = {name: text for name, text in said.items() if 0 < len(text) <= LONGEST and text.isprintable()}
    return known if new.items() <= known.items() else {**known, **new}


def state(*, starting: bool, alive: bool, asking: bool, retrying: bool, answering: bool) -> AgentState:
    """`alive`: its process runs and can be reached. `retrying`: its last report was that it tries again."""
    if not alive:
        return AgentState.STARTING if starting else AgentState.DEAD
    if asking:
        return AgentState.ASKING
    if retrying:
        return AgentState.RETRYING
    return AgentState.BUSY if answering else AgentState.IDLE


def describe(known: Mapping[str, str], now: AgentState, *, name: str | None, mode: str | None) -> dict[str, str | None]:
    """The agent as the API shows it. `name` and `mode` are those chosen for the session."""
    members: dict[str, str | None] = {member: known.get(member) for member in TOLD}
    return {**members, "name": members["name"] or name, "mode": mode or members["mode"], "state": str(now)}
