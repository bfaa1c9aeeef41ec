"""The contracts of fleets, sandboxes, trees and terminals, on a real Docker Engine and on Podman."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.ports.fleet import Fleet
from sandbox.ports.terminals import SandboxTerminals
from sandbox.providers.container.kits import Kits
from tests.contract.fleet import FleetContract
from tests.contract.sandbox import SandboxContract, spec
from tests.contract.sandbox_terminals import SandboxTerminalsContract
from tests.contract.sandbox_tree import Hands, SandboxTreeContract
from tests.sandbox.containers import ContainerHands, opened
from tests.support.engine import DockerEngine, PodmanEngine


class TestDockerFleet(FleetContract, SandboxContract, SandboxTreeContract):
    @pytest.fixture
    async def fleet(self, tmp_path: Path, docker_engine: DockerEngine, kits: Kits) -> AsyncIterator[Fleet]:
        async with opened(docker_engine, tmp_path, kits) as fleet:
            assert (fleet.name, fleet.level) == ("docker", "container")
            yield fleet

    @pytest.fixture
    def hands(self, tmp_path: Path) -> Hands:
        return ContainerHands(tmp_path)


class TestPodmanFleet(FleetContract, SandboxContract):
    """Trees go through the same bind mounts and the same bridge as Docker's."""

    @pytest.fixture
    async def fleet(self, tmp_path: Path, podman_engine: PodmanEngine, kits: Kits) -> AsyncIterator[Fleet]:
        async with opened(podman_engine, tmp_path, kits) as fleet:
            yield fleet


@pytest.fixture(scope="module")
async def docker(
    tmp_path_factory: pytest.TempPathFactory, docker_engine: DockerEngine, kits: Kits
) -> AsyncIterator[Fleet]:
    async with opened(docker_engine, tmp_path_factory.mktemp("docker"), kits) as fleet:
        await fleet.start(spec())
        yield fleet


class TestDockerTerminals(SandboxTerminalsContract):
    """A sandbox costs more than a test: all of them have one."""

    @pytest.fixture
    def terminals(self, docker: Fleet) -> SandboxTerminals:
        return docker.sandbox("s1").terminals()

    @pytest.fixture
    def absent(self, docker: Fleet) -> SandboxTerminals:
        return docker.sandbox("another").terminals()
