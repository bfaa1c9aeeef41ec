"""The contracts of fleets and their sandboxes, once per adapter and level."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.ports.fleet import Fleet
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.memory.fleet import MemoryFleet
from sandbox.providers.memory.sandbox import MemorySandbox
from sandbox.providers.several import Fleets
from tests.contract.fleet import FleetContract
from tests.contract.sandbox import SandboxContract, parrot, prints
from tests.contract.sandbox_tree import Hands, SandboxTreeContract
from tests.sandbox.local import opened


class MemoryHands:
    def __init__(self, fleet: MemoryFleet) -> None:
        self._fleet = fleet

    @property
    def _sandbox(self) -> MemorySandbox:
        return self._fleet.sandboxes["s1"]

    def write(self, path: bytes, content: bytes) -> None:
        self._sandbox.write(path, content)

    def link(self, path: bytes, target: bytes) -> None:
        self._sandbox.roots.symlinks[path] = target

    def make_directory(self, path: bytes) -> None:
        self._sandbox.roots.directories.add(path)

    def remove(self, path: bytes) -> None:
        del self._sandbox.files[path]

    def files(self) -> dict[bytes, bytes]:
        return dict(self._sandbox.files)

    def aside(self) -> list[dict[bytes, bytes]]:
        return self._sandbox.roots.asides


class LocalHands:
    """From outside, as the gateway's user."""

    def __init__(self, data_dir: Path) -> None:
        self._kept = os.fsencode(SandboxHome(data_dir, "s1").kept)

    def write(self, path: bytes, content: bytes) -> None:
        whole = os.path.join(self._kept, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "wb") as file:
            file.write(content)

    def link(self, path: bytes, target: bytes) -> None:
        os.symlink(target, os.path.join(self._kept, path))

    def make_directory(self, path: bytes) -> None:
        os.mkdir(os.path.join(self._kept, path))

    def remove(self, path: bytes) -> None:
        os.unlink(os.path.join(self._kept, path))

    def files(self) -> dict[bytes, bytes]:
        return _files(self._kept, (b"workspace", b"agent"))

    def aside(self) -> list[dict[bytes, bytes]]:
        names = sorted(name for name in os.listdir(self._kept) if name.startswith(b".aside-"))
        return [_files(os.path.join(self._kept, name), (b"workspace", b"agent")) for name in names]


def _files(top: bytes, roots: tuple[bytes, ...]) -> dict[bytes, bytes]:
    found = {}
    for root in roots:
        for directory, _, names in os.walk(os.path.join(top, root)):
            for name in names:
                path = os.path.join(directory, name)
                if not os.path.islink(path):
                    found[os.path.relpath(path, top)] = Path(os.fsdecode(path)).read_bytes()
    return found


class TestMemoryFleet(FleetContract, SandboxContract, SandboxTreeContract):
    @pytest.fixture
    async def fleet(self) -> MemoryFleet:
        return MemoryFleet(parrot, prints)

    @pytest.fixture
    def hands(self, fleet: MemoryFleet) -> Hands:
        return MemoryHands(fleet)


class TestMemoryFleetWithMountedRoots(FleetContract, SandboxContract, SandboxTreeContract):
    @pytest.fixture
    async def fleet(self) -> MemoryFleet:
        fleet = MemoryFleet(parrot, prints)
        fleet.mounts_roots = True
        return fleet

    @pytest.fixture
    def hands(self, fleet: MemoryFleet) -> Hands:
        return MemoryHands(fleet)


class TestSeveralFleets(FleetContract, SandboxContract, SandboxTreeContract):
    """The first of them is where a sandbox runs whose spec names no provider."""

    @pytest.fixture
    async def first(self) -> MemoryFleet:
        return MemoryFleet(parrot, prints)

    @pytest.fixture
    async def fleet(self, first: MemoryFleet, tmp_path: Path) -> AsyncIterator[Fleet]:
        fleets = Fleets(first, LocalFleet(tmp_path, level="trusted"))
        await fleets.open()
        yield fleets
        await fleets.close()

    @pytest.fixture
    def hands(self, first: MemoryFleet) -> Hands:
        return MemoryHands(first)


class TestLocalFleetTrusted(FleetContract, SandboxContract, SandboxTreeContract):
    @pytest.fixture
    async def fleet(self, tmp_path: Path) -> AsyncIterator[Fleet]:
        async with opened(tmp_path, "trusted") as fleet:
            assert (fleet.name, fleet.level) == ("local", "trusted")
            yield fleet

    @pytest.fixture
    def hands(self, tmp_path: Path) -> Hands:
        return LocalHands(tmp_path)


class TestLocalFleetContained(FleetContract, SandboxContract, SandboxTreeContract):
    @pytest.fixture
    async def fleet(self, tmp_path: Path) -> AsyncIterator[Fleet]:
        async with opened(tmp_path, "contained") as fleet:
            assert (fleet.name, fleet.level) == ("local", "contained")
            yield fleet

    @pytest.fixture
    def hands(self, tmp_path: Path) -> Hands:
        return LocalHands(tmp_path)
