"""Sandboxes on this host, as plain processes (`trusted`) or in bubblewrap containers (`contained`).

A bridge starts in its own process session and gets its configuration over a pipe. Its listening socket is bound here
and handed down, so nothing inside can replace it. The order of a start is safe if the gateway is killed: the process is
noted in `bridge.json` before it gets its configuration, and a process that gets none ends by itself.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sandbox.client.bridge_requests import CallFailed, call
from sandbox.ports.fleet import ProviderHealth, SandboxSpec
from sandbox.ports.progress import OnProgress, unheard
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.bridge_config import (
    BridgeSettings,
    TerminalSettings,
    bridge_config,
    failed_start,
    homes,
    make_agents_dir,
)
from sandbox.providers.cgroups.groups import ROOT
from sandbox.providers.local import bubblewrap, processes
from sandbox.providers.local.cloning import CLONE_SECONDS, Cloning
from sandbox.providers.local.control import LimitControl
from sandbox.providers.local.host import LocalHost
from sandbox.providers.local.isolation import Contained, Level, SandboxLimits, Started, Trusted, plain_env
from sandbox.providers.local.launch import listen, open_log
from sandbox.providers.local.layout import BridgeNote, SandboxHome, tail
from sandbox.providers.local.roots import make_roots
from sandbox.providers.local.sandbox import NAME, LocalSandbox, runs_at
from sandbox.providers.local.teardown import end
from sandbox.tree.root_swap import begin_empty

_LOG_TAIL = 2000


class LocalFleet:
    """Implements sandbox.ports.fleet.Fleet. Call `open` before anything else: it decides the level."""

    name = NAME

    def __init__(
        self,
        data_dir: Path,
        *,
        level: str = "auto",
        loopback_only: bool = True,
        base_env: Mapping[str, str] | None = None,
        start_timeout: float = 30.0,
        stop_timeout: float = 10.0,
        clone_timeout: float = CLONE_SECONDS,
        exec_timeout: float = 600.0,
        orphan_seconds: float = 600.0,
        limits: SandboxLimits | None = None,
        resources: ResourceLimits = NO_LIMITS,
        allow_private_repos: bool = False,
        terminals: TerminalSettings | None = None,
        readable: Sequence[Path] = (),
        agents: Path | None = None,
        bwrap: str | None = None,
        warn: Callable[[str], None] = lambda text: None,
        met_limit: Callable[[str], None] = lambda name: None,
        control_groups: Path = ROOT,
    ) -> None:
        """`base_env` is the environment that every sandbox gets. `readable` are further directories that a contained
        sandbox may read; so is `agents`, the directory of installed agents, which is made here. `bwrap` is the program
        that contains sandboxes, by default the one on the path. `limits` are those of single processes. `resources` are
        the limits of whole sandboxes from the settings, which each spec repeats; `met_limit` is called with the name of
        such a limit when it has ended a program."""
        self._host = LocalHost(data_dir, warn, stop_timeout=stop_timeout, limits=resources, met_limit=met_limit)
        self._control = LimitControl(self._host, resources, control_groups)
        self.data_dir = self._host.data_dir
        self._asked = level
        self._loopback_only = loopback_only
        self._base_env = dict(base_env or {})
        self._start_timeout = start_timeout
        self._cloning = Cloning(self._host, self._base_env, seconds=clone_timeout, allow_private=allow_private_repos)
        self._bridges = BridgeSettings(exec_timeout, orphan_seconds, terminals or TerminalSettings())
        self._limits = limits or SandboxLimits()
        self._readable = tuple(readable)
        self._agents = agents and agents.absolute()
        self._bwrap = bwrap
        self._warn = warn
        self._level: Level = Trusted(self._agents)

    @property
    def level(self) -> str:
        return self._level.name

    async def open(self) -> None:
        self._host.open()
        if self._agents is not None:
            make_agents_dir(self._agents)
        if self._asked == "trusted":
            if not self._loopback_only:
                self._warn("sandboxes run without isolation (level trusted), and others can reach this gateway")
            return self._check_limits()
        try:
            self._level = await asyncio.to_thread(self._contained)
            await asyncio.to_thread(self._control.open)
        except bubblewrap.NotContained as exc:
            if self._asked == "contained":
                raise SandboxFailed(f"HOLDFAST_LOCAL_LEVEL=contained: {exc}. Install bubblewrap 0.8 or newer") from exc
            if not self._loopback_only:
                raise SandboxFailed(
                    f"sandboxes cannot be contained here: {exc}. Install bubblewrap, or set "
                    "HOLDFAST_LOCAL_LEVEL=trusted if everybody who can reach this gateway may run programs as its user"
                ) from exc
            self._warn(f"sandboxes run without isolation (level trusted): {exc}. Install bubblewrap")
        self._check_limits()

    def _check_limits(self) -> None:
        """Refuse limits that cannot be enforced if the level `contained` was requested by name, as isolation itself is
        refused. Otherwise warn."""
        if (problem := self._control.unenforced) is None:
            return
        if self._asked == "contained":
            raise SandboxFailed(f"{problem}. Unset the limits to run without them")
        self._warn(problem)

    @property
    def no_limits(self) -> str | None:
        """Why limits cannot be enforced here, and what to change. None if they can."""
        return self._control.problem

    async def health(self) -> ProviderHealth:
        """The size of this host. It always answers."""
        return ProviderHealth(cpus=os.cpu_count(), memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

    def check(self, spec: SandboxSpec) -> None:
        self._control.check(spec.limits)
        if spec.image is not None:
            raise SandboxFailed("image: local sandboxes have this host's programs and no image: use provider docker")
        if spec.repo_url is None:
            return
        self._cloning.check(spec.repo_url, spec.repo_branch)
        if spec.network == "none":
            raise SandboxFailed("repoUrl needs the network: create the session with network: outbound")

    async def start(self, spec: SandboxSpec, progress: OnProgress = unheard) -> None:
        if spec.network not in ("none", "outbound"):
            raise SandboxFailed(f"network: {spec.network!r} is neither none nor outbound")
        self._control.check(spec.limits)
        home = self._host.home(spec.session_id)
        async with self._host.turn(spec.session_id):
            await end(home, patience=self._host.stop_timeout)
            try:
                await asyncio.to_thread(home.make)
                if spec.empty:
                    await asyncio.to_thread(begin_empty, home.kept)
                if self._level.mounts_roots:
                    await make_roots(self._host, self._level, home, seconds=self._start_timeout)
                if spec.repo_url is not None and home.workspace_is_empty():
                    self.check(spec)
                    await self._cloning.clone(home, self._level, spec.repo_url, spec.repo_branch, key=spec.clone_key)
                await self._launch(home, spec)
            except OSError as exc:
                raise SandboxFailed(f"the sandbox could not be started: {exc.strerror or exc}") from exc

    async def running(self) -> list[str]:
        return await asyncio.to_thread(self._running)

    def sandbox(self, session_id: str) -> LocalSandbox:
        return LocalSandbox(session_id, self._level, self._host)

    async def close(self) -> None:
        self._control.close()
        self._host.close()

    def _contained(self) -> Level:
        contained = Contained(
            self._bwrap or bubblewrap.find(), self.data_dir, self._limits, self._readable, self._agents
        )
        contained.check()
        return contained

    def _running(self) -> list[str]:
        found = []
        for entry in (self.data_dir / "sandboxes").iterdir():
            with contextlib.suppress(ValueError):
                if runs_at(self._host.home(entry.name)):
                    found.append(entry.name)
        return found

    async def _launch(self, home: SandboxHome, spec: SandboxSpec) -> None:
        token = secrets.token_urlsafe(32)
        starting = asyncio.create_task(asyncio.to_thread(self._run_bridge, home, spec, token), name="sandbox.start")
        said = b""
        try:
            started, config = await asyncio.shield(starting)
            try:
                # If the configuration is larger than the pipe, this waits for the bridge. If the bridge dies, it fails.
                await asyncio.to_thread(_write_all, config, self._config(home, spec, token))
                await call(self._host.endpoint(home.socket), "GET", "/health", timeout=self._start_timeout)
            finally:
                said = started.last_words()
        except (CallFailed, OSError) as exc:
            await end(home, patience=0)
            raise SandboxFailed(self._failure(home, spec, token, exc, said)) from exc
        except BaseException:
            if not starting.done():
                # A thread cannot be cancelled: wait until the process it starts is known, then end the process.
                with contextlib.suppress(OSError):
                    started, config = await starting
                    started.last_words()
                    os.close(config)
            await end(home, patience=0)
            raise

    def _run_bridge(self, home: SandboxHome, spec: SandboxSpec, token: str) -> tuple[Started, int]:
        """Start the process and note it. Return it, and the write end of the pipe for its configuration."""
        config, config_end = os.pipe()
        log = open_log(home.bridge_log)
        try:
            with listen(self._host.sockets, home.socket) as listener:
                env = {**plain_env(home), "PYTHONPATH": self._level.places(home).code}
                started = self._level.start_bridge(home, env, config, listener.fileno(), log, spec.limits)
            group = self._control.make(home, spec.limits)
            home.write_note(
                BridgeNote(
                    session_id=spec.session_id,
                    incarnation=spec.incarnation,
                    level=self._level.name,
                    socket=home.socket,
                    token=token,
                    pid=started.process.pid,
                    started=started.process.started,
                    init_pid=started.first.pid,
                    init_started=started.first.started,
                    boot=processes.boot_id(),
                    group={} if group is None else group.note(),
                )
            )
            if group is not None:
                self._control.join(group, started)
        except BaseException:
            os.close(config_end)
            raise
        finally:
            os.close(config)
            os.close(log)
        return started, config_end

    def _config(self, home: SandboxHome, spec: SandboxSpec, token: str) -> bytes:
        places = self._level.places(home)
        base_env = {**plain_env(home), **self._base_env, **homes(places, home.session_id)}
        settings = replace(self._bridges, egress=self._level.own_loopback)
        return bridge_config(spec, token, places, base_env, home.agent_log.name, settings, processes.boot_id())

    def _failure(self, home: SandboxHome, spec: SandboxSpec, token: str, exc: Exception, words: bytes) -> str:
        return failed_start(
            exc, words + tail(home.bridge_log, _LOG_TAIL), (token, *spec.env.values(), *self._base_env.values())
        )


def _write_all(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb") as pipe:
        pipe.write(content)
