"""`/metrics` of a real gateway: what is counted, for whom an operator asks."""

from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.waiting import until

Series = dict[tuple[str, str], float]  # (name, provider, "" without that label) -> value


@pytest.fixture
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("metrics") / "data", SYNC_DEBOUNCE=0.1) as running:
        yield running


async def series(gateway: Gateway) -> Series:
    async with gateway.http(gateway.admin) as admin:
        text = (await admin.get("/metrics")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, sample.labels.get("provider", "")): sample.value for sample in samples}


async def until_status(client: httpx.AsyncClient, session_id: str, wanted: str) -> None:
    async def is_so() -> bool:
        return bool((await client.get(f"/api/sandboxes/{session_id}")).json()["status"] == wanted)

    await until(is_so, f"{session_id} {wanted}")


async def counted(gateway: Gateway) -> tuple[float, float, float, float]:
    """Sandboxes created, started, woken and running."""
    seen = await series(gateway)
    names = ("sandboxes_created_total", "sandbox_starts_total", "wake_seconds_count", "sandboxes_running")
    created, starts, woken, running = (seen["holdfast_" + name, "local"] for name in names)
    return created, starts, woken, running


async def test_creations_and_starts_are_counted_apart_by_provider(gateway: Gateway) -> None:
    assert await counted(gateway) == (0, 0, 0, 0), "a series that is there before the first is counted"

    async def is_up() -> bool:
        return (await series(gateway))["holdfast_provider_up", "local"] == 1

    await until(is_up, "the provider was asked")
    async with gateway.http() as ada:
        assert (await ada.post("/api/sandboxes/first")).status_code == 201
        await until_status(ada, "first", "running")
        assert await counted(gateway) == (1, 1, 1, 1)
        assert (await ada.post("/api/sandboxes/first/sleep")).status_code == 200
        assert await counted(gateway) == (1, 1, 1, 0)
        assert (await ada.post("/api/sandboxes/first")).status_code == 200, "there is one already: it wakes"
        await until_status(ada, "first", "running")
        assert await counted(gateway) == (1, 2, 2, 1)
        branched = await ada.post("/api/sandboxes/first/snapshots/newest/branch")
        assert branched.status_code == 201
        assert await counted(gateway) == (2, 2, 2, 1), "a branch is created, and sleeps"
        assert (await ada.delete("/api/sandboxes/first")).status_code == 200
        assert (await ada.post("/api/sandboxes/first")).status_code == 200, "archived: it is created again"
        await until_status(ada, "first", "running")
        assert await counted(gateway) == (3, 3, 3, 1)


async def test_a_message_and_its_answer_are_timed(gateway: Gateway) -> None:
    await gateway.create("talks")
    async with gateway.chat("talks") as socket:
        await hear(socket, "welcome")
        for number in range(3):
            await say(socket, "message", cid=f"m{number}", content="hello")
            await hear(socket, "done")
    seen = await series(gateway)
    assert (seen["holdfast_message_seconds_count", ""], seen["holdfast_answer_seconds_count", ""]) == (3, 3)
    assert seen["holdfast_answer_seconds_sum", ""] > seen["holdfast_message_seconds_sum", ""] > 0


async def test_stored_bytes_of_workspaces_follow_syncs_branches_and_deletes(gateway: Gateway) -> None:
    async def stored() -> float:
        return (await series(gateway))["holdfast_stored_workspace_bytes", ""]

    async def is_zero() -> bool:
        return await stored() == 0

    await until(is_zero, "the first count")
    async with gateway.http() as ada:
        await gateway.create("keeps")
        async with gateway.chat("keeps") as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="m", content="/write notes.txt " + 5000 * "x")
            await hear(socket, "done")
        assert (await ada.post("/api/sandboxes/keeps/sleep")).status_code == 200
        size = (await ada.get("/api/sandboxes/keeps/snapshots")).json()["snapshots"][0]["bytes"]
        assert size > 5000
        assert await stored() == size
        branch = (await ada.post("/api/sandboxes/keeps/snapshots/newest/branch")).json()["id"]
        assert await stored() == 2 * size
        await gateway.restart(kill=True)

    async def is_known_again() -> bool:
        return await stored() == float(2 * size)

    await until(is_known_again, "the count after a restart")
    async with gateway.http() as ada:
        assert (await ada.delete(f"/api/sandboxes/{branch}", params={"purge": 1})).status_code == 200
        assert await stored() == size
        assert (await ada.delete("/api/sandboxes/keeps")).status_code == 200
        assert await stored() == 0


async def test_the_time_to_attach_again_after_a_restart_is_measured(gateway: Gateway) -> None:
    names = ("one", "two", "sleeps")
    async with gateway.http() as ada:
        for name in names:
            await gateway.create(name)
        for name in names:
            await until_status(ada, name, "running")
        assert (await ada.post("/api/sandboxes/sleeps/sleep")).status_code == 200
        assert (await series(gateway))["holdfast_reattach_seconds_count", "local"] == 0
        await gateway.restart(kill=True)

    async def attached() -> bool:
        return (await series(gateway))["holdfast_reattach_seconds_count", "local"] == 2

    await until(attached, "the sandboxes that run attached again")
    async with gateway.http() as ada:
        assert (await ada.post("/api/sandboxes/sleeps/wake")).status_code == 200
    assert await attached(), "what is started is not found again"


async def test_a_session_that_postgres_has_already_is_not_counted_again(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str
) -> None:
    async with Gateway(tmp_path_factory.mktemp("metrics") / "data", STORE=postgres_url) as gateway:
        await gateway.create("one")
        await gateway.create("one")
        await gateway.create("two")
        assert (await counted(gateway))[0] == 2
