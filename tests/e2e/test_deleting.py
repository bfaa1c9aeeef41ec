"""DELETE moves a session's files away and answers; removing them holds nobody up."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandbox.providers.local.layout import SandboxHome
from tests.support.gateway import Gateway
from tests.support.waiting import until

AT_ONCE = 30
DIRECTORIES = 4_000


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path / "data", MAX_CONNECTIONS_PER_ADDRESS=400) as running:
        await running.create("stem")
        yield running


async def _branch(gateway: Gateway, client: httpx.AsyncClient, tree: int, wide: int = 20) -> Path:
    """A session whose sandbox does not run, with `tree` directories of `wide` directories each on the disk."""
    answer = await client.post("/api/sandboxes/stem/snapshots/newest/branch")
    assert answer.status_code == 201, answer.text
    home = SandboxHome(gateway.data_dir, answer.json()["id"])
    home.make()
    for outer in range(tree):
        (home.workspace / str(outer)).mkdir(parents=True)
        for inner in range(wide):
            os.mkdir(home.workspace / str(outer) / str(inner))
    return home.root


async def test_thirty_sessions_are_deleted_at_once(gateway: Gateway) -> None:
    """The trash was one for all, and whoever found a name gone that another one had removed answered 500."""
    async with gateway.http() as client:
        assert (await client.post("/api/sandboxes/stem/sync")).status_code == 200
        roots = [await _branch(gateway, client, 2) for _ in range(AT_ONCE)]
        asked = (client.delete(f"/api/sandboxes/{root.name}?purge=1") for root in roots)
        answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200] * AT_ONCE
    assert not [root for root in roots if root.exists()]
    await until(lambda: not list((gateway.data_dir / "trash").iterdir()))


async def test_nobody_waits_for_a_large_tree_and_a_killed_gateway_goes_on_with_it(gateway: Gateway) -> None:
    trash = gateway.data_dir / "trash"
    async with gateway.http() as client:
        assert (await client.post("/api/sandboxes/stem/sync")).status_code == 200
        small = await _branch(gateway, client, 1)
        large = await _branch(gateway, client, DIRECTORIES // 100, 99)
        for root in (large, small):
            assert (await client.delete(f"/api/sandboxes/{root.name}?purge=1")).status_code == 200
            assert list(trash.iterdir()), "it was removed before the answer came"
            assert not root.exists()
    await gateway.kill()
    assert list(trash.iterdir())
    await gateway.start()
    await until(lambda: not list(trash.iterdir()), "an empty trash")
    await gateway.terminate()
