"""The place in which the campaigns of containers run."""

from collections.abc import AsyncIterator

import pytest

from sandbox.providers.container.kits import Kits
from tests.campaign.places import Containers
from tests.support.engine import DockerEngine


@pytest.fixture
async def containers(docker_engine: DockerEngine, kits: Kits) -> AsyncIterator[Containers]:
    """The engine, left as it was found: containers outlive their gateway."""
    kit = await kits.current()
    yield Containers.of(docker_engine, kit.parent)
    left = docker_engine.client("ps", "--all", "--quiet").split()
    if left:
        docker_engine.client("rm", "--force", "--volumes", *left)
