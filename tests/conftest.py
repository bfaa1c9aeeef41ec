"""Fixtures that three or more files use."""

from typing import Any

import pytest


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Tests run on the loop the gateway runs on."""
    return "asyncio", {"use_uvloop": True}
