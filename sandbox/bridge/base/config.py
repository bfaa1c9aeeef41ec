"""A bridge's configuration: JSON over an inherited descriptor, so that secrets stay off argv and disk."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from sandbox.agents.catalogue import CORES, DEFAULT
from sandbox.protocol.agent_server import AgentServer, BadServer, read_server
from sandbox.protocol.values import SizePolicy

MAX_CONFIG = 4 * 1024 * 1024


class ConfigError(Exception):
    """The configuration is unusable. The text names the member, never its value."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Every bound of a bridge, in bytes, pieces and seconds."""

    backlog_bytes: int = 8 * 1024 * 1024
    queue_lines: int = 256
    queue_bytes: int = 8 * 1024 * 1024
    agent_log_bytes: int = 5 * 1024 * 1024
    exec_output_bytes: int = 1024 * 1024
    exec_at_once: int = 8
    attach_seconds: float = 10.0
    silence_seconds: float = 60.0  # a gateway pings every 10 s; one that is silent for this long is gone
    stop_input_seconds: float = 2.0  # from the end of input to SIGTERM
    stop_term_seconds: float = 5.0  # from SIGTERM to SIGKILL
    watches: int = 16_384  # directories that the bridge watches for changes
    hint_seconds: float = 1.0  # between two hints of changed files
    blind_hint_seconds: float = 30.0  # the same where the kernel reports no changes, while an agent runs
    heartbeat_seconds: float = 2.0  # between two signs of life during an operation on the tree
    tree_silence_seconds: float = 600.0  # a gateway in the middle of an operation may wait for its object store
    server_start_seconds: float = 60.0  # until an agent that is a server is ready
    drain_seconds: float = 1.0  # how long a process that left its group may hold a dead process's output open
    terminals: int = 16
    terminal_viewers: int = 64  # of one terminal
    terminal_ring_bytes: int = 2 * 1024 * 1024
    terminal_scrollback: int = 1000  # lines above the screen in a picture
    terminal_hold_seconds: float = 10.0  # how long bytes that the last viewer may still want are not overwritten
    terminal_hang_up_seconds: float = 5.0  # from SIGHUP to SIGKILL; as long as an agent has after SIGTERM
    terminal_exit_seconds: float = 60.0  # how long an unwatched terminal stays after its program has ended
    terminal_idle_seconds: float = 0.0  # an unwatched terminal that is silent for so long is ended; 0: never


@dataclass(frozen=True, slots=True)
class Config:
    session_id: str
    incarnation: int
    token: str = field(repr=False)
    agent: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    base_env: Mapping[str, str] = field(repr=False)
    kept: Path  # the directory of the two roots, `workspace` and `agent`
    workspace: Path  # where programs start: the same root, by the name that programs know
    state: Path
    agent_log: Path
    core: str = DEFAULT  # the agent's core: a name in sandbox/agents/catalogue.py
    server: AgentServer | None = None  # the bridge reaches the agent there, not by its pipes
    all_events: bool = False  # pass on events that the core does not know
    hold: bool = False
    orphan_seconds: float = 600.0
    exec_timeout: float = 600.0
    shell: tuple[str, ...] = ()  # a terminal's program; empty: a login shell
    sizes: SizePolicy = "active"  # who decides the size of a terminal
    home_files: Mapping[str, str] = field(default_factory=dict)  # below HOME, written where there are none
    egress: int = 0  # the port of the loopback where programs reach the proxy; 0: there is none
    boot_id: str = ""  # of the host; empty: the bridge asks its kernel, which not every sandbox lets it
    new_inodes: bool = False  # each start of a sandbox gives the files of its roots new inode numbers
    limits: Limits = field(default_factory=Limits)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every program here."""
        return {**self.base_env, **self.env}


def read_config(descriptor: int) -> Config:
    """Read `descriptor` to its end and close it. Raises ConfigError."""
    with os.fdopen(descriptor, "rb") as source:
        text = source.read(MAX_CONFIG + 1)
    if len(text) > MAX_CONFIG:
        raise ConfigError("the configuration is too long")
    return parse_config(text)


def parse_config(text: bytes) -> Config:
    """Raises ConfigError."""
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError("the configuration is not JSON") from None
    if not isinstance(members, dict):
        raise ConfigError("the configuration is not an object")
    unknown = members.keys() - {member.name for member in fields(Config)}
    if unknown:
        raise ConfigError(f"unknown members: {', '.join(sorted(unknown))}")
    agent = _argv(members, "agent")
    if not agent:
        raise ConfigError("agent: a list of one or more strings")
    core = members.get("core", DEFAULT)
    if not isinstance(core, str) or core not in CORES:
        raise ConfigError(f"core: no such core of an agent; this bridge has {', '.join(sorted(CORES))}")
    sizes = members.get("sizes", "active")
    if sizes not in get_args(SizePolicy):
        raise ConfigError("sizes: active, smallest or fixed")
    token = _text(members, "token")
    if len(token) < 16:
        raise ConfigError("token: too short")
    return Config(
        session_id=_text(members, "session_id"),
        incarnation=int(_number(members, "incarnation", 0)),
        token=token,
        agent=agent,
        env=_env(members, "env"),
        base_env=_env(members, "base_env"),
        kept=Path(_text(members, "kept")),
        workspace=Path(_text(members, "workspace")),
        state=Path(_text(members, "state")),
        agent_log=Path(_text(members, "agent_log")),
        core=core,
        server=_server(members.get("server")),
        all_events=_flag(members, "all_events"),
        hold=_flag(members, "hold"),
        orphan_seconds=_number(members, "orphan_seconds", 600.0),
        exec_timeout=_number(members, "exec_timeout", 600.0),
        shell=_argv(members, "shell"),
        sizes=sizes,
        home_files=_home_files(members.get("home_files", {})),
        egress=_port(members, "egress"),
        boot_id=_boot_id(members.get("boot_id", "")),
        new_inodes=_flag(members, "new_inodes"),
        limits=_limits(members.get("limits", {})),
    )


def _limits(members: Any) -> Limits:
    if not isinstance(members, dict):
        raise ConfigError("limits: an object")
    unknown = members.keys() - {member.name for member in fields(Limits)}
    if unknown:
        raise ConfigError(f"limits: unknown members: {', '.join(sorted(unknown))}")
    return Limits(**{name: _number(members, name, 0) for name in members})


def _server(members: Any) -> AgentServer | None:
    if members is None:
        return None
    if not isinstance(members, dict) or members.keys() - {"connect", "health"}:
        raise ConfigError("server: an object with connect and health")
    try:
        return read_server(members.get("connect"), members.get("health", ""))
    except BadServer as exc:
        raise ConfigError(f"server.{exc.member}: {exc.wanted}") from None


def _home_files(members: Any) -> dict[str, str]:
    texts = isinstance(members, dict) and all(isinstance(each, str) for pair in members.items() for each in pair)
    if not texts or any(name.startswith("/") or ".." in name.split("/") or "\0" in name for name in members):
        raise ConfigError("home_files: an object of texts, by their paths below HOME")
    return dict(members)


def _boot_id(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-f-]{0,64}", value):
        raise ConfigError("boot_id: at most 64 of the characters 0-9, a-f and -")
    return value


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not value or "\0" in value:
        raise ConfigError(f"{name}: a string")
    return value


def _argv(members: dict[str, Any], name: str) -> tuple[str, ...]:
    value = members.get(name, [])
    if not isinstance(value, list) or not all(isinstance(part, str) and "\0" not in part for part in value):
        raise ConfigError(f"{name}: a list of strings")
    return tuple(value)


def _number(members: dict[str, Any], name: str, default: float) -> Any:
    value = members.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError(f"{name}: a number")
    return value


def _port(members: dict[str, Any], name: str) -> int:
    value = members.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 65536:
        raise ConfigError(f"{name}: a port")
    return value


def _flag(members: dict[str, Any], name: str) -> bool:
    value = members.get(name, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: true or false")
    return value


def _env(members: dict[str, Any], name: str) -> dict[str, str]:
    value = members.get(name, {})
    if not isinstance(value, dict) or not all(env_pair_is_usable(*pair) for pair in value.items()):
        raise ConfigError(f"{name}: an object of strings")
    return value


def env_pair_is_usable(key: object, value: object) -> bool:
    """Whether the kernel would take `key=value` as an environment entry."""
    return (
        isinstance(key, str)
        and isinstance(value, str)
        and bool(key)
        and "=" not in key
        and "\0" not in key
        and "\0" not in value
    )
