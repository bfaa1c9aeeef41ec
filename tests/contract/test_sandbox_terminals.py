"""The contract of terminals, once per adapter and level. A sandbox costs more than a test: each class has one."""

from collections.abc import AsyncIterator

import pytest

from sandbox.ports.fleet import Fleet
from sandbox.ports.terminals import SandboxTerminals
from sandbox.providers.memory.fleet import MemoryFleet
from tests.contract.sandbox import parrot, spec
from tests.contract.sandbox_terminals import SandboxTerminalsContract
from tests.sandbox.local import opened


@pytest.fixture(scope="module")
async def memory() -> Fleet:
    fleet = MemoryFleet(parrot)
    await fleet.start(spec())
    return fleet


@pytest.fixture(scope="module")
async def trusted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with opened(tmp_path_factory.mktemp("trusted"), "trusted") as fleet:
        await fleet.start(spec())
        yield fleet


@pytest.fixture(scope="module")
async def contained(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with opened(tmp_path_factory.mktemp("contained"), "contained") as fleet:
        await fleet.start(spec())
        yield fleet


class _OfProvider(SandboxTerminalsContract):
    @pytest.fixture
    def terminals(self, fleet: Fleet) -> SandboxTerminals:
        return fleet.sandbox("s1").terminals()

    @pytest.fixture
    def absent(self, fleet: Fleet) -> SandboxTerminals:
        return fleet.sandbox("another").terminals()


class TestMemoryTerminals(_OfProvider):
    @pytest.fixture
    def fleet(self, memory: Fleet) -> Fleet:
        return memory


class TestLocalTerminalsTrusted(_OfProvider):
    @pytest.fixture
    def fleet(self, trusted: Fleet) -> Fleet:
        return trusted


class TestLocalTerminalsContained(_OfProvider):
    @pytest.fixture
    def fleet(self, contained: Fleet) -> Fleet:
        return contained
