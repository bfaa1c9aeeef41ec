"""The SandboxProvider contract, once per adapter and level."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.ports import SandboxProvider
from sandbox.providers.memory import MemoryProvider
from tests.contract.sandbox_provider import SandboxProviderContract, parrot
from tests.sandbox.local import opened


class TestMemoryProvider(SandboxProviderContract):
    @pytest.fixture
    async def provider(self) -> SandboxProvider:
        return MemoryProvider(parrot)


class TestLocalProviderTrusted(SandboxProviderContract):
    @pytest.fixture
    async def provider(self, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
        async with opened(tmp_path, "trusted") as provider:
            assert (provider.name, provider.level) == ("local", "trusted")
            yield provider


class TestLocalProviderContained(SandboxProviderContract):
    @pytest.fixture
    async def provider(self, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
        async with opened(tmp_path, "contained") as provider:
            assert (provider.name, provider.level) == ("local", "contained")
            yield provider
