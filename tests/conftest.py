"""Fixtures that three or more files use."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.virtual_time import VirtualTimeLoop

# On a busy machine, how long an example takes says nothing. The same examples each time: a run that fails, fails again.
settings.register_profile("test", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("soak", settings.get_profile("test"), derandomize=False)
settings.load_profile("soak" if os.environ.get("HOLDFAST_TEST_SOAK") else "test")


@pytest.fixture(scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Tests run on the loop the gateway runs on; modules marked `virtual_time` on one whose clock jumps."""
    if request.node.get_closest_marker("virtual_time"):
        return "asyncio", {"loop_factory": VirtualTimeLoop}
    return "asyncio", {"use_uvloop": True}
