"""The engines that the tests of containers share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.providers.container.kits import Kits
from tests.support.engine import DockerEngine, PodmanEngine, whats_missing


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """An engine of the test run's own. Whoever stops it starts it again."""
    if reason := whats_missing(*DockerEngine.programs):
        pytest.skip(reason)
    with DockerEngine() as engine:
        yield engine


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[PodmanEngine]:
    if reason := whats_missing(*PodmanEngine.programs):
        pytest.skip(reason)
    with PodmanEngine() as engine:
        yield engine


@pytest.fixture(params=["docker", "podman"])
def any_engine(request: pytest.FixtureRequest) -> DockerEngine | PodmanEngine:
    found: DockerEngine | PodmanEngine = request.getfixturevalue(f"{request.param}_engine")
    return found


@pytest.fixture(scope="session")
def kits_directory() -> Iterator[Path]:
    """Where there is a kit after the first who asks: it is made once for all tests."""
    with tempfile.TemporaryDirectory(prefix="hf-kits-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(scope="session")
def kits(kits_directory: Path) -> Kits:
    return Kits(kits_directory)
