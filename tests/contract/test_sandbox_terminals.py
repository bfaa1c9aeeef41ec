"""The contract of terminals, once per adapter and level. A sandbox costs more than a test: each class has one."""

from collections.abc import AsyncIterator

import pytest

from sandbox.ports.provider import SandboxProvider
from sandbox.ports.terminals import SandboxTerminals
from sandbox.providers.memory.provider import MemoryProvider
from tests.contract.sandbox_provider import parrot, spec
from tests.contract.sandbox_terminals import SandboxTerminalsContract
from tests.sandbox.local import opened


@pytest.fixture(scope="module")
async def memory() -> SandboxProvider:
    provider = MemoryProvider(parrot)
    await provider.start(spec())
    return provider


@pytest.fixture(scope="module")
async def trusted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SandboxProvider]:
    async with opened(tmp_path_factory.mktemp("trusted"), "trusted") as provider:
        await provider.start(spec())
        yield provider


@pytest.fixture(scope="module")
async def contained(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SandboxProvider]:
    async with opened(tmp_path_factory.mktemp("contained"), "contained") as provider:
        await provider.start(spec())
        yield provider


class _OfProvider(SandboxTerminalsContract):
    @pytest.fixture
    def terminals(self, provider: SandboxProvider) -> SandboxTerminals:
        return provider.terminals("s1")

    @pytest.fixture
    def absent(self, provider: SandboxProvider) -> SandboxTerminals:
        return provider.terminals("another")


class TestMemoryTerminals(_OfProvider):
    @pytest.fixture
    def provider(self, memory: SandboxProvider) -> SandboxProvider:
        return memory


class TestLocalTerminalsTrusted(_OfProvider):
    @pytest.fixture
    def provider(self, trusted: SandboxProvider) -> SandboxProvider:
        return trusted


class TestLocalTerminalsContained(_OfProvider):
    @pytest.fixture
    def provider(self, contained: SandboxProvider) -> SandboxProvider:
        return contained
