"""Where real agents are. `make test` has none and says so; `make test-agents` fails where one is missing."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fake_model.serving import INNER, fake_model
from tests.support.gateway import Gateway
from tests.support.launcher import Launcher, Tampering

FORGIVING = Tampering(patches=("forgiving", "hasty"))  # the fifth kill within five minutes would be a crash loop


@pytest.fixture(scope="session")
def agents_dir() -> Path:
    given = os.environ.get("HOLDFAST_TEST_AGENTS")
    if not given:
        pytest.skip("real agents are tried by `make test-agents`")
    return Path(given).absolute()


@pytest.fixture(scope="module")
async def model() -> AsyncIterator[str]:
    """The address of a fake model."""
    async with fake_model() as address:
        yield address


@pytest.fixture(scope="module")
async def gateway(agents_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One for all sessions of a module, on which agents may be killed again and again."""
    settings = {"AGENTS_DIR": agents_dir, "LOCAL_LEVEL": "contained", "NETWORK_INNER": INNER, "DEMO": "true"}
    async with Launcher() as launcher:
        running = Gateway(tmp_path_factory.mktemp("agents") / "data", **settings)
        running.launcher, running.tampering = launcher, FORGIVING
        async with running:
            yield running
