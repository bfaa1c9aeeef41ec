"""Where real agents are. `make test` has none and says so; `make test-agents` fails where one is missing."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def agents_dir() -> Path:
    given = os.environ.get("HOLDFAST_TEST_AGENTS")
    if not given:
        pytest.skip("real agents are tried by `make test-agents`")
    return Path(given).absolute()
