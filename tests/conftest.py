"""Fixtures that three or more files use."""

import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from sandbox.providers.container.kits import Kits
from tests.support.engine import DockerEngine, PodmanEngine, whats_missing
from tests.support.failures import pytest_runtest_logfinish, pytest_runtest_logstart, pytest_runtest_makereport
from tests.support.image_registry import ImageRegistry, registry_missing
from tests.support.postgres import PostgresServer, create_database, drop_database
from tests.support.s3 import S3Place, S3Server, fresh_place
from tests.support.unheard import Complaints
from tests.support.virtual_time import VirtualTimeLoop

__all__ = ["pytest_runtest_logfinish", "pytest_runtest_logstart", "pytest_runtest_makereport"]

# On a busy machine, how long an example takes says nothing. The same examples each time: a run that fails, fails again.
settings.register_profile("test", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("soak", settings.get_profile("test"), derandomize=False)
settings.register_profile("seeded", settings.get_profile("soak"), database=None)  # by --hypothesis-seed
if os.environ.get("HOLDFAST_TEST_SOAK"):
    settings.load_profile("soak")
else:
    settings.load_profile("seeded" if os.environ.get("HOLDFAST_TEST_SEED") else "test")

# Under nohup SIGHUP is ignored, and in the background of a script SIGINT; they would be by every program that a test
# starts. A handler is not inherited.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    if os.path.lexists("holdfast.toml"):
        raise pytest.UsageError("gateways of tests are started here and would read holdfast.toml: move it elsewhere")


COMPLAINTS = Complaints()
logging.getLogger("asyncio").addHandler(COMPLAINTS)


@pytest.fixture(autouse=True)
def no_task_is_left_alone() -> Iterator[None]:
    COMPLAINTS.taken()
    yield
    assert COMPLAINTS.taken() == []


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Tests run on the loop the gateway runs on; modules marked `virtual_time` on one whose clock jumps."""
    if request.node.get_closest_marker("virtual_time"):
        return "asyncio", {"loop_factory": VirtualTimeLoop}
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server of the test run's own. Whoever stops it starts it again."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh, empty database: on the server HOLDFAST_TEST_POSTGRES_URL names, or on the test run's own."""
    server_url = os.environ.get("HOLDFAST_TEST_POSTGRES_URL")
    if server_url is None:
        server_url = request.getfixturevalue("postgres_server").url()
    url = create_database(server_url)
    yield url
    drop_database(server_url, url)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server of the test run's own. Whoever stops it starts it again."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_place(request: pytest.FixtureRequest) -> S3Place:
    """An empty place: on the server HOLDFAST_TEST_S3_URL names, or on the test run's own."""
    return fresh_place(os.environ, lambda: request.getfixturevalue("s3_server"))


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """An engine of the test run's own. Whoever stops it starts it again."""
    if reason := whats_missing(*DockerEngine.programs):
        pytest.skip(reason)
    with DockerEngine() as engine:
        yield engine


@pytest.fixture(scope="session")
def image_registry() -> Iterator[ImageRegistry]:
    if reason := registry_missing():
        pytest.skip(reason)
    with ImageRegistry() as registry:
        yield registry


@pytest.fixture(scope="session")
def private_registry() -> Iterator[ImageRegistry]:
    """One that wants a login."""
    if reason := registry_missing():
        pytest.skip(reason)
    with ImageRegistry(login=True) as registry:
        yield registry


@pytest.fixture(scope="session")
def podman_engine(request: pytest.FixtureRequest) -> Iterator[PodmanEngine]:
    if reason := whats_missing(*PodmanEngine.programs):
        pytest.skip(reason)
    registries = () if registry_missing() else ("image_registry", "private_registry")
    with PodmanEngine([request.getfixturevalue(name).address for name in registries]) as engine:
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
