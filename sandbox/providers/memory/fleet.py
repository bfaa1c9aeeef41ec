"""Sandboxes that exist only in this process: a real adapter for tests on virtual time."""

import asyncio
from collections.abc import Callable

from sandbox.ports.fleet import ProviderHealth, SandboxSpec
from sandbox.ports.link import Link, LinkEvents, LinkRefused
from sandbox.ports.progress import ImageChosen, ImagePull, ImagePulled, OnProgress, unheard
from sandbox.ports.resources import Resources
from sandbox.ports.sandbox import Command, CommandResult, SandboxFailed, SandboxUnavailable
from sandbox.ports.tree import LiveFile, LiveListing, TreeFailed
from sandbox.protocol.values import Position
from sandbox.providers.memory.link import Pipe
from sandbox.providers.memory.sandbox import MemorySandbox
from sandbox.providers.memory.scripted import Script, echo
from sandbox.providers.memory.terminals import MemoryTerminal, MemoryTerminals
from sandbox.providers.memory.tree import MemoryTree

RunCommand = Callable[[Command], CommandResult]


def no_command(command: Command) -> CommandResult:
    """The default for `exec`: the agent is the only program."""
    return CommandResult(127, "", f"{command.argv[0]}: not found")


class MemoryHandle:
    """Implements sandbox.ports.sandbox.Sandbox: passes one session's calls to the fleet."""

    level = "trusted"

    def __init__(self, fleet: "MemoryFleet", session_id: str) -> None:
        self.session_id = session_id
        self._fleet = fleet

    @property
    def provider(self) -> str:
        return self._fleet.name

    @property
    def mounts_roots(self) -> bool:
        return self._fleet.mounts_roots

    async def runs(self) -> bool:
        return await self._fleet.runs(self.session_id)

    async def connect(self, events: LinkEvents, after: Position | None) -> Link:
        return await self._fleet.connect(self.session_id, events, after)

    def tree(self) -> MemoryTree:
        return self._fleet.tree(self.session_id)

    def terminals(self) -> MemoryTerminals:
        return self._fleet.terminals(self.session_id)

    async def files(
        self, root: bytes, path: bytes, *, start: int = 0, length: int | None = None
    ) -> LiveListing | LiveFile | None:
        return await self.tree().files(root, path, start=start, length=length)

    async def exec(self, command: Command) -> CommandResult:
        self._fleet.find(self.session_id)
        return self._fleet.command(command)

    async def egress(self) -> None:
        return None

    async def logs(self, *, limit: int = 65536) -> bytes:
        return await self._fleet.logs(self.session_id, limit)

    async def resources(self) -> Resources | None:
        return self._fleet.resources.get(self.session_id) if await self.runs() else None

    async def stop(self) -> None:
        await self._fleet.stop(self.session_id)

    async def kill(self) -> bool:
        return await self._fleet.kill(self.session_id)

    async def destroy(self) -> None:
        await self._fleet.destroy(self.session_id)


class MemoryFleet:
    """Implements sandbox.ports.fleet.Fleet: sandboxes are objects. Tests may change its public attributes at any
    time."""

    name = "memory"
    level = "trusted"

    def __init__(self, script: Script = echo, command: RunCommand = no_command) -> None:
        self.script = script  # applies to sandboxes made from now on
        self.command = command  # runs what `exec` is given
        self.mounts_roots = False  # applies to sandboxes that boot from now on
        self.start_seconds = 0.0  # how long a start takes
        self.start_failures: list[str] = []  # each start takes the first one and fails with it
        self.start_problem: str | None = None  # every start fails with this text
        self.link_problem: str | None = None  # every connect is refused with this text
        self.unavailable: str | None = None  # why the provider does not answer; None: it answers
        self.resources: dict[str, Resources] = {}  # the resources that each session's sandbox reports
        self.images: dict[str, ImageChosen] = {}  # the image of each name; "": the one for specs that name none
        self.pulls: list[ImagePull] = []  # the steps of the pull that each start waits for
        self.pull_seconds = 1.0  # how long each step takes
        self.pull_ends_after = 0.0  # how long the pull goes on after the last step
        self.pull_problem: str | None = None
        self.starts = 0
        self.sandboxes: dict[str, MemorySandbox] = {}  # includes those that do not run

    async def open(self) -> None:
        return None

    async def health(self) -> ProviderHealth:
        return ProviderHealth(self.unavailable)

    def check(self, spec: SandboxSpec) -> None:
        pass

    async def start(self, spec: SandboxSpec, progress: OnProgress = unheard) -> None:
        self._answer()
        self.starts += 1
        await self.stop(spec.session_id)
        if self.pulls:
            await self._pull(progress)
        await asyncio.sleep(self.start_seconds)
        problem = self.start_failures.pop(0) if self.start_failures else self.start_problem
        if problem is not None:
            raise SandboxFailed(problem)
        sandbox = self.sandboxes.setdefault(spec.session_id, MemorySandbox(spec, self.script))
        sandbox.boot(spec)
        sandbox.roots.mounted = self.mounts_roots
        if (chosen := self.images.get(spec.image or "")) is not None:
            progress(chosen)

    async def _pull(self, progress: OnProgress) -> None:
        """Pull once for each start. A real provider shares one pull between starts."""
        pulls = self.pulls
        for pull in pulls:
            progress(pull)
            await asyncio.sleep(self.pull_seconds)
        await asyncio.sleep(self.pull_ends_after)
        if self.pull_problem is not None:
            raise SandboxFailed(self.pull_problem)
        progress(ImagePulled(pulls[-1].image))

    async def running(self) -> list[str]:
        self._answer()
        return [session_id for session_id, sandbox in self.sandboxes.items() if sandbox.alive]

    def sandbox(self, session_id: str) -> MemoryHandle:
        return MemoryHandle(self, session_id)

    async def close(self) -> None:
        return None

    # Calls of the handles. Tests replace them.

    def find(self, session_id: str) -> MemorySandbox:
        """The session's running sandbox. Raises LinkRefused, SandboxUnavailable."""
        self._answer()
        sandbox = self.sandboxes.get(session_id)
        if self.link_problem is not None:
            raise LinkRefused(self.link_problem)
        if sandbox is None or not sandbox.alive:
            raise LinkRefused(f"no sandbox runs for {session_id}")
        return sandbox

    async def runs(self, session_id: str) -> bool:
        return session_id in await self.running()

    async def connect(self, session_id: str, events: LinkEvents, after: Position | None) -> Link:
        return self.find(session_id).attach(events, after)

    async def stop(self, session_id: str) -> None:
        self._answer()
        sandbox = self.sandboxes.get(session_id)
        if sandbox and sandbox.alive:
            sandbox.end("the sandbox was stopped")

    async def kill(self, session_id: str) -> bool:
        self._answer()
        sandbox = self.sandboxes.get(session_id)
        if sandbox is None or not sandbox.alive:
            return False
        sandbox.crash()
        return True

    async def destroy(self, session_id: str) -> None:
        await self.stop(session_id)
        self.sandboxes.pop(session_id, None)

    def tree(self, session_id: str) -> MemoryTree:
        def running() -> MemorySandbox:
            sandbox = self.sandboxes.get(session_id)
            if self.unavailable is not None:
                raise TreeFailed("silent", self.unavailable) from SandboxUnavailable(self.unavailable)
            if sandbox is None or not sandbox.alive:
                raise TreeFailed("absent", f"no sandbox runs for {session_id}")
            return sandbox

        return MemoryTree(lambda: running().roots, lambda: running().agent is not None, lambda: running().stop_agent())

    def terminals(self, session_id: str) -> MemoryTerminals:
        def running() -> dict[str, MemoryTerminal]:
            try:
                return self.find(session_id).terminals
            except SandboxUnavailable as error:
                raise LinkRefused(str(error)) from error

        return MemoryTerminals(running, Pipe)

    async def logs(self, session_id: str, limit: int) -> bytes:
        self._answer()
        sandbox = self.sandboxes.get(session_id)
        return bytes(sandbox.log[-limit:]) if sandbox and limit > 0 else b""

    def _answer(self) -> None:
        if self.unavailable is not None:
            raise SandboxUnavailable(self.unavailable)
