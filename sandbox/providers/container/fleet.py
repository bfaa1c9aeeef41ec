"""Sandboxes as containers of a Docker Engine or a Podman on this host, each in any image.

A container runs the bridge as its first process, from a read-only kit, and gets everything else through a door.
document.py says what is inside, door.py how it starts. The order of a start is safe if the gateway is killed: a
container has its session's labels and name before it runs, and is noted before it gets its configuration; a container
that gets none ends by itself. Leftovers are found by their labels: see left_over.py.
"""

import asyncio
import contextlib
import hashlib
import os
import platform
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox.ports.fleet import AGENTS, ProviderHealth, SandboxSpec
from sandbox.ports.leftovers import Leftover
from sandbox.ports.progress import ImageChosen, OnProgress, unheard
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable
from sandbox.providers.bridge_config import BridgeSettings, bridge_config, failed_start, homes, make_agents_dir
from sandbox.providers.container import document
from sandbox.providers.container.clearing import Clearing
from sandbox.providers.container.cloning import OutsideClones
from sandbox.providers.container.containers import ISOLATED, LEVEL, Containers
from sandbox.providers.container.document import Bind, ContainerLimits, ContainerPlan, inner_paths, label
from sandbox.providers.container.engine import Engine
from sandbox.providers.container.engine_answers import BadAnswer, machine_of, one_line
from sandbox.providers.container.host_paths import HostPaths
from sandbox.providers.container.image import (
    ContainerUser,
    Image,
    Unusable,
    accounts,
    check_engine,
    check_runtime,
    cpu_name,
    is_gvisor,
    user_of,
)
from sandbox.providers.container.image_files import ImageFiles
from sandbox.providers.container.images import EngineImages
from sandbox.providers.container.installation import Propose
from sandbox.providers.container.kit_maker import start_line
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.logins import LoginFile
from sandbox.providers.container.pulls import PATIENCE_SECONDS, ImagePulls, PullEnd
from sandbox.providers.container.sandbox import NAME, ContainerSandbox
from sandbox.providers.container.starting import ContainerFailed, ContainerStart
from sandbox.providers.local.cloning import CLONE_SECONDS
from sandbox.providers.local.isolation import Trusted
from sandbox.providers.local.layout import SandboxHome, tail
from sandbox.providers.local.processes import MARKER, boot_id
from sandbox.providers.local.roots import make_roots
from sandbox.system.give_away import give_tree
from sandbox.system.interpreter import PYTHON
from sandbox.tree.root_swap import begin_empty

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
DOOR_SECONDS = 30.0
STARTS_AFTER_PULL = 4
_LOG_TAIL = 2000


@dataclass(frozen=True, slots=True)
class _Grounds:
    """The facts about the engine and the kit that every start needs."""

    user: ContainerUser
    kit: Path
    paths: HostPaths


class ContainerFleet:
    """Implements sandbox.ports.fleet.Fleet and sandbox.ports.leftovers.LeavesThings. Call `open` first. The constructor
    does no I/O."""

    name = NAME

    def __init__(
        self,
        data_dir: Path,
        *,
        engine: str,
        image: str,
        propose: Propose | None = None,
        base_env: Mapping[str, str] | None = None,
        limits: ContainerLimits | None = None,
        runtime: str | None = None,
        bridges: BridgeSettings | None = None,
        readable: Mapping[Path, str] | None = None,
        agents: Path | None = None,
        kits: Kits | None = None,
        start_timeout: float = 30.0,
        stop_timeout: float = 10.0,
        door_seconds: float = DOOR_SECONDS,
        clone_timeout: float = CLONE_SECONDS,
        allow_private_repos: bool = False,
        bwrap: str | None = None,
        resources: ResourceLimits = NO_LIMITS,
        may_pull: bool = True,
        pull_timeout: float = PATIENCE_SECONDS,
        logins: LoginFile | None = None,
        on_pull: Callable[[PullEnd], None] | None = None,
        warn: Callable[[str], None] = lambda text: None,
        met_limit: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`engine` is the engine's address. `propose` takes an id and returns the id that the store keeps (None: there
        is no store). `readable` maps further directories of the host to their paths inside. `agents` is the directory
        of installed agents; it is made here. `bwrap` is the program that contains clones, by default the one on the
        path. `pull_timeout` is how long a pull may make no progress; `on_pull` is called at the end of each pull.
        `resources` are the limits from the settings, which each spec repeats. `met_limit` is called with the name of a
        limit that has ended a program. Raises ValueError for a bad address."""
        self._limits = limits or ContainerLimits()
        self._containers = Containers(
            Engine(engine),
            propose,
            data_dir,
            warn,
            stop_timeout=stop_timeout,
            level=ISOLATED if is_gvisor(runtime) else LEVEL,
            limits=self._limits.with_those_of(resources).of_the_whole,
            met_limit=met_limit,
        )
        self._clearing = Clearing(self._containers)
        self._host = self._containers.host
        self._engine = self._containers.engine
        self._base_env = dict(base_env or {})
        self._runtime = runtime
        self._bridges = replace(
            bridges or BridgeSettings(), own_kernel=is_gvisor(runtime), egress=not is_gvisor(runtime)
        )
        self._readable = dict(readable or {})
        self._agents = agents and agents.absolute()
        self._kits = kits or Kits(self._host.data_dir / "kit")
        self._start_timeout = start_timeout
        self._door_seconds = door_seconds
        self._clones = OutsideClones(
            self._host,
            self._base_env,
            seconds=clone_timeout,
            allow_private=allow_private_repos,
            readable=list(self._readable),
            bwrap=bwrap,
        )
        told_end = on_pull or (lambda end: None)
        cpu = cpu_name(platform.machine())
        pulls = ImagePulls(self._engine, cpu=cpu, logins=logins, patience=pull_timeout, on_end=told_end)
        self._images = EngineImages(self._engine, image, pulls if may_pull else None)
        self._after_pull = asyncio.Semaphore(STARTS_AFTER_PULL)  # many starts may have waited for one image
        self._warn = warn
        self._told: set[str] = set()
        self._grounds: _Grounds | None = None
        self._preparing = asyncio.Lock()
        self._files = ImageFiles(self._containers)
        self._machine: ProviderHealth | None = None  # of the engine that answered last

    @property
    def level(self) -> str:
        return self._containers.level

    async def open(self) -> None:
        await self._containers.open()
        if self._agents is not None:
            make_agents_dir(self._agents)
        for name in ("doors", "accounts"):
            (self._host.data_dir / name).mkdir(mode=0o700, exist_ok=True)
        await self._clones.open()
        try:
            await self._prepared()
            if told := await self._images.missing():
                self._warn(told)
        except SandboxUnavailable as exc:
            self._warn(str(exc))

    async def health(self) -> ProviderHealth:
        """Check the engine's first answer in full. After it, a ping is enough."""
        try:
            if self._machine is None:
                info = await self._engine.info()
                check_engine(info, platform.machine())
                check_runtime(info, self._runtime)
                paths = await self._containers.host_paths()
                user_of(info, os.geteuid(), os.getegid(), in_container=paths.in_container)
                self._machine = machine_of(info)
            else:
                await self._engine.ping()
        except (SandboxFailed, SandboxUnavailable, Unusable, BadAnswer) as exc:
            self._machine = None  # another engine may come back
            return ProviderHealth(str(exc))
        return self._machine

    def check(self, spec: SandboxSpec) -> None:
        if spec.network not in ("none", "outbound"):
            raise SandboxFailed(f"network: {spec.network!r} is neither none nor outbound")
        if spec.network == "outbound" and is_gvisor(self._runtime):
            raise SandboxFailed("network: a container of gVisor has no way out yet: create it with network: none")
        if spec.repo_url is not None:
            self._clones.check(spec.repo_url, spec.repo_branch)

    async def start(self, spec: SandboxSpec, progress: OnProgress = unheard) -> None:
        self.check(spec)
        home = self._host.home(spec.session_id)
        async with self._host.turn(spec.session_id):
            grounds = await self._prepared()
            await self._containers.end(home, patience=self._host.stop_timeout)
            self._host.limits.begin(spec.session_id)
            image, fetched = await self._images.of(spec, progress)
            async with self._after_pull if fetched else contextlib.nullcontext():
                await self._start(home, spec, grounds, image)
        progress(ImageChosen(spec.image or self._images.default, image.id, image.digest))

    async def _start(self, home: SandboxHome, spec: SandboxSpec, grounds: _Grounds, image: Image) -> None:
        await self._files.check_libc(image, spec.image or self._images.default, spec.agent_libc)
        try:
            await self._make(home, grounds.user, empty=spec.empty)
            if spec.repo_url is not None and home.workspace_is_empty():
                await self._clones.clone(home, grounds.user, spec.repo_url, spec.repo_branch, spec.clone_key)
            passwd = await self._accounts(image, grounds.user)
            await self._launch(home, spec, grounds, image, passwd)
        except OSError as exc:
            raise SandboxFailed(f"the sandbox could not be started: {exc.strerror or exc}") from exc

    async def running(self) -> list[str]:
        running = await self._containers.all()
        return sorted({label(each, "session") for each in running if self._clearing.is_noted(each)})

    def sandbox(self, session_id: str) -> ContainerSandbox:
        return ContainerSandbox(session_id, self._containers)

    async def leftovers(self) -> list[Leftover]:
        return await self._clearing.look()

    async def clear(self, leftover: Leftover) -> bool:
        return await self._clearing.clear(leftover)

    def endings(self) -> AsyncIterator[None]:
        return self._clearing.endings()

    async def close(self) -> None:
        await self._images.close()
        await self._containers.close()

    async def _prepared(self) -> _Grounds:
        """Look up what starts need, once, when the engine answers. Raises SandboxUnavailable, SandboxFailed."""
        async with self._preparing:
            if self._grounds is None:
                info = await self._engine.info()
                try:
                    check_engine(info, platform.machine())
                    check_runtime(info, self._runtime)
                    paths = await self._containers.host_paths()
                    for path in (self._host.data_dir, *self._readable, *([self._agents] if self._agents else [])):
                        paths.of(path)
                    user = user_of(info, os.geteuid(), os.getegid(), in_container=paths.in_container)
                except (Unusable, BadAnswer) as exc:
                    raise SandboxFailed(str(exc)) from exc
                kit = await self._kits.current()
                await self._remove_unused_kits()
                self._grounds = _Grounds(user, kit, paths)
            return self._grounds

    async def _remove_unused_kits(self) -> None:
        used = {label(found, "kit") for found in await self._containers.all(stopped=True)}
        for kit in self._kits.unused(used):
            await asyncio.to_thread(self._host.trash.take, kit)

    async def _make(self, home: SandboxHome, user: ContainerUser, *, empty: bool) -> None:
        """Make the sandbox's directories from outside, while nothing runs in it. A container mounts the roots, so they
        must exist before the container is made."""
        await asyncio.to_thread(home.make)
        await make_roots(self._host, Trusted(), home, seconds=self._start_timeout)
        if empty:
            await asyncio.to_thread(begin_empty, home.kept)
        if user.given:
            await asyncio.to_thread(_give, home, user)

    async def _accounts(self, image: Image, user: ContainerUser) -> Path:
        """The path of the image's /etc/passwd with our user added. It is made once per image."""
        key = hashlib.sha256(f"{image.id} {user.said}".encode()).hexdigest()[:32]
        path = self._host.data_dir / "accounts" / key
        async with self._preparing:
            if not path.exists():
                content = await self._files.passwd(image)
                await asyncio.to_thread(_put, path, accounts(content or b"", user, inner_paths().agent))
        return path

    async def _launch(
        self, home: SandboxHome, spec: SandboxSpec, grounds: _Grounds, image: Image, passwd: Path
    ) -> None:
        token = secrets.token_urlsafe(32)
        door = self._host.data_dir / "doors" / home.socket.removesuffix(".sock")
        start = ContainerStart(
            containers=self._containers,
            home=home,
            plan=self._plan(home, spec, grounds, image, {door: document.DOOR, passwd: "/etc/passwd"}),
            door=door,
            owner=grounds.user.owner,
            token=token,
            config=self._config(home, spec, image, token),
            seconds=self._start_timeout,
            on_warnings=self._pass_on,
        )
        try:
            await start.run()
        except ContainerFailed as exc:
            said = await asyncio.to_thread(tail, home.bridge_log, _LOG_TAIL)
            await self._containers.end(home, patience=0)
            hidden = (token, *spec.env.values(), *self._base_env.values())
            raise SandboxFailed(failed_start(exc, said, hidden)) from exc
        except BaseException:
            with contextlib.suppress(SandboxUnavailable):  # the next start or the next gateway finds it
                await self._containers.end(home, patience=0)
            raise

    def _plan(
        self, home: SandboxHome, spec: SandboxSpec, grounds: _Grounds, image: Image, readable: Mapping[Path, str]
    ) -> ContainerPlan:
        agents = {} if self._agents is None else {self._agents: AGENTS}
        seen = {grounds.kit: document.KIT, **readable, **self._readable, **agents}
        binds = [*_roots(home), *(Bind(str(source), target) for source, target in seen.items())]
        return ContainerPlan(
            session_id=spec.session_id,
            labels=self._containers.labels(spec.session_id),
            incarnation=spec.incarnation,
            image=image.id,
            image_env=image.env,
            kit=grounds.kit.name,
            start_line=start_line(document.KIT),
            user=grounds.user.said,
            binds=[replace(bind, source=grounds.paths.of(Path(bind.source))) for bind in binds],
            door_seconds=self._door_seconds,
            limits=self._limits.with_those_of(spec.limits),
            runtime=self._runtime,
        )

    def _config(self, home: SandboxHome, spec: SandboxSpec, image: Image, token: str) -> bytes:
        places = replace(inner_paths(), agents=AGENTS if self._agents else "")
        # The bridge gives its programs only these variables, so the image's own must be among them.
        plain = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "xterm-256color", **image.env, MARKER: home.marker}
        base_env = {**plain, **self._base_env, **homes(places, home.session_id)}
        if spec.agent[:1] == (PYTHON,):  # this host's interpreter: the kit has the same one
            spec = replace(spec, agent=(*start_line(document.KIT), *spec.agent[1:]))
        return bridge_config(spec, token, places, base_env, home.agent_log.name, self._bridges, boot_id())

    def _pass_on(self, warnings: Sequence[str]) -> None:
        """Pass on each warning of the engine once, for example that it does not enforce a limit."""
        for text in warnings:
            if text not in self._told:
                self._told.add(text)
                self._warn(f"the container engine warns: {one_line(text)}")


def _roots(home: SandboxHome) -> list[Bind]:
    """The mounts of a sandbox's directory. `inner_paths` has the same paths."""
    return [
        Bind(str(home.kept), document.KEPT, writable=True),
        Bind(str(home.workspace), document.WORKSPACE, writable=True),
        Bind(str(home.agent), document.AGENT, writable=True),
        Bind(str(home.state), document.STATE, writable=True),
    ]


def _give(home: SandboxHome, user: ContainerUser) -> None:
    """Give the sandbox's directories to the container's user: root makes them at each start. Their content already has
    its owner, unless containers had another user before, for example because the engine now remaps users. The owner of
    the state directory, which is given last, tells whether that is so."""
    if home.state.stat(follow_symlinks=False).st_uid != user.owner:
        give_tree(home.kept, user.owner, user.owner_group)
        for entry in home.state.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                give_tree(entry, user.owner, user.owner_group)
            os.chown(entry, user.owner, user.owner_group, follow_symlinks=False)
    for path in (home.kept, home.workspace, home.agent, home.state):
        os.chown(path, user.owner, user.owner_group, follow_symlinks=False)


def _put(path: Path, content: bytes) -> None:
    """Write a file that containers read, atomically."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    draft.write_bytes(content)
    draft.chmod(0o644)
    draft.rename(path)
