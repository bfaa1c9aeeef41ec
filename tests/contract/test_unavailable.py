"""The contract of a provider that does not answer, once per adapter that can be one."""

import pytest

from sandbox.ports.sandbox import Sandbox, SandboxUnavailable
from sandbox.providers.memory.fleet import MemoryFleet
from sandbox.providers.several import Fleets
from tests.contract.sandbox import parrot, prints, spec
from tests.contract.unavailable import UnavailableContract


class TestMemorySandbox(UnavailableContract):
    @pytest.fixture
    async def fleet(self) -> MemoryFleet:
        fleet = MemoryFleet(parrot, prints)
        await fleet.start(spec())
        fleet.unavailable = "gone fishing"
        return fleet

    @pytest.fixture
    def sandbox(self, fleet: MemoryFleet) -> Sandbox:
        return fleet.sandbox("s1")

    async def test_nothing_starts_and_what_runs_goes_on(self, fleet: MemoryFleet) -> None:
        with pytest.raises(SandboxUnavailable, match="gone fishing"):
            await fleet.start(spec(incarnation=2))
        with pytest.raises(SandboxUnavailable):
            await fleet.running()
        fleet.unavailable = None
        assert await fleet.running() == ["s1"]
        assert fleet.starts == 1


class TestAbsentSandbox(UnavailableContract):
    """Of a provider that this gateway does not have."""

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        return Fleets(MemoryFleet()).sandbox("s1", "elsewhere")

    async def test_it_says_what_to_do(self, sandbox: Sandbox) -> None:
        assert (sandbox.session_id, sandbox.provider, sandbox.level) == ("s1", "elsewhere", "unknown")
        with pytest.raises(SandboxUnavailable, match="'elsewhere', which this gateway does not have: start"):
            await sandbox.runs()
        fleets = Fleets(MemoryFleet())
        elsewhere = spec("s1", provider="elsewhere")
        with pytest.raises(SandboxUnavailable):
            await fleets.start(elsewhere)
        with pytest.raises(SandboxUnavailable):
            fleets.check(elsewhere)
