"""Fixtures that three or more files here use."""

from collections.abc import AsyncIterator

import pytest

from tests.support.sessions import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Agents that echo, in memory; see there."""
    async with World() as world:
        yield world
