"""Several fleets as one. A session's sandbox is at the provider that is stored with the session; new sessions go to
the first provider. A provider that this gateway does not have counts as one that does not answer: nothing is known of
its sandboxes, so none is started, stopped or taken for dead. Only the operator can declare such a provider gone."""

from collections.abc import Collection, Iterator

from sandbox.client.endpoint import Endpoint
from sandbox.client.terminals import BridgeTerminals
from sandbox.client.tree import BridgeTree
from sandbox.ports.fleet import Fleet, ProviderHealth, SandboxSpec
from sandbox.ports.link import Link, LinkEvents, LinkRefused
from sandbox.ports.progress import OnProgress, unheard
from sandbox.ports.resources import Resources
from sandbox.ports.sandbox import Command, CommandResult, Sandbox, SandboxFailed, SandboxUnavailable
from sandbox.ports.terminals import SandboxTerminals
from sandbox.ports.tree import LiveFile, LiveListing, SandboxTree
from sandbox.protocol.values import Position


class Fleets:
    """Implements sandbox.ports.fleet.Fleet."""

    def __init__(self, first: Fleet, *others: Fleet, gone: Collection[str] = ()) -> None:
        """`gone` names the providers that no longer exist; their sandboxes no longer exist either."""
        self._first = first
        self._gone = gone
        self._fleets = {fleet.name: fleet for fleet in (first, *others)}
        if len(self._fleets) != 1 + len(others):
            raise ValueError("two fleets have the same name")

    def __iter__(self) -> Iterator[Fleet]:
        return iter(self._fleets.values())

    @property
    def name(self) -> str:
        return self._first.name

    @property
    def level(self) -> str:
        return self._first.level

    async def open(self) -> None:
        opened: list[Fleet] = []
        try:
            for fleet in self:
                await fleet.open()
                opened.append(fleet)
        except BaseException:
            for fleet in reversed(opened):
                await fleet.close()
            raise

    async def health(self) -> ProviderHealth:
        """The health of the provider that new sessions go to."""
        return await self._first.health()

    @property
    def names(self) -> list[str]:
        return list(self._fleets)

    def check(self, spec: SandboxSpec) -> None:
        self._of(spec).check(spec)

    async def start(self, spec: SandboxSpec, progress: OnProgress = unheard) -> None:
        await self._of(spec).start(spec, progress)

    async def running(self) -> list[str]:
        return [session_id for fleet in self for session_id in await fleet.running()]

    def sandbox(self, session_id: str, provider: str = "") -> Sandbox:
        fleet = self._fleets.get(provider or self.name)
        if fleet is not None:
            return fleet.sandbox(session_id)
        return (GoneSandbox if provider in self._gone else AbsentSandbox)(session_id, provider)

    async def close(self) -> None:
        for fleet in reversed(list(self)):
            await fleet.close()

    def _of(self, spec: SandboxSpec) -> Fleet:
        """The fleet of the spec's provider. Raises SandboxUnavailable if this gateway does not have it, SandboxFailed
        if it is gone."""
        fleet = self._fleets.get(spec.provider or self.name)
        if fleet is None and spec.provider in self._gone:
            raise SandboxFailed(
                f"the session's sandbox was at the provider {spec.provider!r}, which is gone: branch the session to go "
                "on from its newest snapshot, or delete it"
            )
        if fleet is None:
            raise _not_here(spec.provider)
        return fleet


class AbsentSandbox:
    """Implements sandbox.ports.sandbox.Sandbox: a sandbox at a provider that this gateway does not have."""

    level = "unknown"
    mounts_roots = False

    def __init__(self, session_id: str, provider: str) -> None:
        self.session_id = session_id
        self.provider = provider

    async def runs(self) -> bool:
        raise _not_here(self.provider)

    async def connect(self, events: LinkEvents, after: Position | None) -> Link:
        raise _not_here(self.provider)

    def tree(self) -> SandboxTree:
        return BridgeTree(self._find)

    def terminals(self) -> SandboxTerminals:
        return BridgeTerminals(self._find)

    async def files(
        self, root: bytes, path: bytes, *, start: int = 0, length: int | None = None
    ) -> LiveListing | LiveFile | None:
        return await BridgeTree(self._find).files(root, path)

    async def exec(self, command: Command) -> CommandResult:
        raise _not_here(self.provider)

    async def logs(self, *, limit: int = 65536) -> bytes:
        raise _not_here(self.provider)

    async def resources(self) -> Resources | None:
        return None

    async def stop(self) -> None:
        raise _not_here(self.provider)

    async def egress(self) -> None:
        raise _not_here(self.provider)

    async def kill(self) -> bool:
        raise _not_here(self.provider)

    async def destroy(self) -> None:
        raise _not_here(self.provider)

    async def _find(self) -> Endpoint:
        raise _not_here(self.provider)


class GoneSandbox(AbsentSandbox):
    """Implements sandbox.ports.sandbox.Sandbox: a sandbox at a provider that is gone. It does not run, and nothing of
    it is left."""

    async def runs(self) -> bool:
        return False

    async def connect(self, events: LinkEvents, after: Position | None) -> Link:
        raise self._refusal()

    async def exec(self, command: Command) -> CommandResult:
        raise self._refusal()

    async def logs(self, *, limit: int = 65536) -> bytes:
        return b""

    async def stop(self) -> None:
        pass

    async def egress(self) -> None:
        return None

    async def kill(self) -> bool:
        return False

    async def destroy(self) -> None:
        pass

    async def _find(self) -> Endpoint:
        raise self._refusal()

    def _refusal(self) -> LinkRefused:
        return LinkRefused(f"no sandbox runs for {self.session_id}: its provider {self.provider!r} is gone")


def _not_here(provider: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the session's sandbox is at the provider {provider!r}, which this gateway does not have: "
        "start a gateway that has it, or name it in HOLDFAST_GONE_PROVIDERS if it is gone for good"
    )
