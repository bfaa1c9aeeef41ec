"""The configuration that every provider gives a bridge at its start, and the text shown for a failed start."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.ports.fleet import AGENTS, SandboxSpec
from sandbox.ports.sandbox import SandboxFailed

_BUILT_IN = ("sandbox.demo_agent", "sandbox.absent_agent")
EGRESS_PORT = 3128
_SECRET_LENGTH = 8  # shorter values are too likely to be ordinary words


@dataclass(frozen=True, slots=True)
class TerminalSettings:
    """A bridge's settings for terminals. `shell` is the program of terminals that name none; None: the bridge chooses.
    `sizes` says whose size counts: `active`, `smallest` or `fixed`."""

    shell: tuple[str, ...] | None = None
    sizes: str = "active"
    ring_bytes: int = 2 * 1024 * 1024
    hold_seconds: float = 10.0
    scrollback: int = 1000
    most: int = 16
    idle_seconds: float = 0.0

    def config(self) -> dict[str, Any]:
        shell = {} if self.shell is None else {"shell": list(self.shell)}
        limits = {
            "terminals": self.most,
            "terminal_ring_bytes": self.ring_bytes,
            "terminal_hold_seconds": self.hold_seconds,
            "terminal_scrollback": self.scrollback,
            "terminal_idle_seconds": self.idle_seconds,
        }
        return {**shell, "sizes": self.sizes, "limits": limits}


@dataclass(frozen=True, slots=True)
class InnerPaths:
    """Paths as the processes inside see them. The `sandbox` package can be imported from `code`. `agents` is the
    directory of installed agents; "": there is none."""

    kept: str
    workspace: str
    agent: str
    state: str
    code: str
    agents: str = ""


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """The settings that all bridges of a fleet share."""

    exec_timeout: float = 600.0
    orphan_seconds: float = 600.0
    terminals: TerminalSettings = field(default_factory=TerminalSettings)
    egress: bool = False  # programs reach the network through a port of their own loopback
    own_kernel: bool = False  # each sandbox has its own kernel: new inode numbers, and no watch across mounts


def bridge_config(
    spec: SandboxSpec,
    token: str,
    places: InnerPaths,
    base_env: Mapping[str, str],
    agent_log: str,
    settings: BridgeSettings,
    boot_id: str,
) -> bytes:
    """The document that sandbox/bridge/base/config.py reads. It contains secrets. `boot_id` is the host's, because not
    every sandbox can ask the host's kernel."""
    env = {**spec.agent_env, **base_env, **(proxy_env() if settings.egress else {})}
    if any(part in _BUILT_IN for part in spec.agent):
        env["PYTHONPATH"] = places.code
    if places.agents:
        env["PATH"] = f"{env['PATH']}:{places.agents}/bin"  # last: the sandbox's own programs come first
    return json.dumps(
        {
            "session_id": spec.session_id,
            "incarnation": spec.incarnation,
            "token": token,
            "agent": [_inside(part, places) for part in spec.agent],
            **({"core": spec.core} if spec.core else {}),
            **({"all_events": True} if spec.all_events else {}),
            **({"home_files": dict(spec.home_files)} if spec.home_files else {}),
            **({"server": spec.agent_server.members()} if spec.agent_server else {}),
            "env": dict(spec.env),
            "base_env": env,
            "kept": places.kept,
            "workspace": places.workspace,
            "state": places.state,
            "boot_id": boot_id,
            **({"egress": EGRESS_PORT} if settings.egress else {}),
            "agent_log": f"{places.state}/{agent_log}",
            "hold": spec.hold,
            "orphan_seconds": settings.orphan_seconds,
            "exec_timeout": settings.exec_timeout,
            **settings.terminals.config(),
            **(_own_kernel(settings.terminals.config()) if settings.own_kernel else {}),
        }
    ).encode()


def proxy_env() -> dict[str, str]:
    """The variables that send programs to the proxy. No single name is known to all programs."""
    proxy, direct = f"http://127.0.0.1:{EGRESS_PORT}", "127.0.0.1,localhost,::1"
    env = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
    return {**env, "NO_PROXY": direct, "no_proxy": direct, "NODE_USE_ENV_PROXY": "1"}


def _own_kernel(members: Mapping[str, Any]) -> dict[str, Any]:
    return {"new_inodes": True, "limits": {**members["limits"], "watches": 0}}


def make_agents_dir(directory: Path) -> None:
    """Make the directory of installed agents before any sandbox mounts it, so that sandboxes also see agents installed
    later. Raises SandboxFailed."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as exc:
        raise SandboxFailed(f"HOLDFAST_AGENTS_DIR {directory} cannot be made: {exc.strerror or exc}") from exc


def _inside(part: str, places: InnerPaths) -> str:
    return places.agents + part.removeprefix(AGENTS) if part.startswith(f"{AGENTS}/") else part


def homes(places: InnerPaths, session_id: str) -> dict[str, str]:
    """The variables that say where agents keep their files and which session this is."""
    return {
        "HOME": places.agent,
        "CLAUDE_CONFIG_DIR": f"{places.agent}/.claude",
        "PI_CODING_AGENT_DIR": f"{places.agent}/.pi",
        "HOLDFAST_SESSION_ID": session_id,
    }


def failed_start(why: object, said: bytes, secrets: Iterable[str]) -> str:
    """The text for the user: why a sandbox did not start, and its last output with secrets replaced."""
    words = said.decode(errors="replace").strip()
    for secret in secrets:
        if len(secret) >= _SECRET_LENGTH:
            words = words.replace(secret, "***")
    return f"the sandbox did not start: {why}" + (f". It said: {words}" if words else "")
