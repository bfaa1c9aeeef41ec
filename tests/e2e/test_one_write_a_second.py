"""A bucket that takes one write a second to one key and answers 429 to the next, as Cloudflare R2 does."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from sync.objects.probe import PromiseBroken, probe
from sync.objects.retrying import RequestLimits, RetryingObjects
from tests.contract.object_store import found_in
from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.support.faulty_s3 import FaultyS3
from tests.support.gateway import Gateway
from tests.support.launcher import launch
from tests.support.s3 import CarelessS3Server, S3Place, S3Server

FEW = 10


@pytest.fixture
async def limited(s3_server: S3Server) -> AsyncIterator[FaultyS3]:
    async with FaultyS3(s3_server.port, Random(1)) as server:
        server.key_seconds = 1.0
        yield server


def told(server: FaultyS3) -> str:
    return f"{len(server.too_soon)} of {server.writes} writes were refused: {server.too_soon}"


async def test_the_probe_passes_gently_and_leaves_nothing(s3_server: S3Server, limited: FaultyS3) -> None:
    """Twenty who raced used up the retries of everybody else: the check failed, and 47 of 50 writes were refused."""
    place = s3_server.make_place().at(limited.port)
    async with RetryingObjects(place.objects(), RequestLimits(), Random(1)) as store:
        await probe(store, store.bare)
        assert await found_in(store, "") == {}
    assert 0 < len(limited.too_soon) <= FEW, told(limited)


async def test_the_limit_hides_no_broken_promise() -> None:
    with CarelessS3Server() as careless:
        async with FaultyS3(careless.port, Random(1)) as server:
            server.key_seconds = 1.0
            place = careless.make_bucket().at(server.port)
            async with RetryingObjects(place.objects(), RequestLimits(), Random(1)) as store:
                with pytest.raises(PromiseBroken, match="created in place of an existing one"):
                    await probe(store, store.bare)


class BucketGateway(Gateway):
    def __init__(self, data_dir: Path, place: S3Place) -> None:
        super().__init__(data_dir)
        self._place = place

    def environment(self) -> dict[str, str]:
        return super().environment() | self._place.environ


async def test_doctor_is_green_and_a_gateway_syncs_and_restores(
    s3_server: S3Server, limited: FaultyS3, tmp_path: Path
) -> None:
    gateway = BucketGateway(tmp_path / "data", s3_server.make_place().at(limited.port))
    elsewhere = {"HOLDFAST_DATA_DIR": str(tmp_path / "elsewhere"), "HOLDFAST_PORT": "0"}
    doctor = await launch(
        "doctor", "--json",
        stdout=asyncio.subprocess.PIPE, env=gateway.environment() | elsewhere,
    )  # fmt: skip
    async with gateway, gateway.http() as ada:
        assert "objects.unavailable" not in gateway.log, "the probe has failed"
        said, _ = await doctor.communicate()
        (found,) = [each for each in json.loads(said)["checks"] if each["name"] == "objects"]
        assert (found["state"], "it honours conditional writes" in found["told"]) == ("ok", True), found
        probing = len(limited.too_soon)
        assert probing <= 2 * FEW, told(limited)

        await gateway.create("s1")
        await comes_to(ada, "s1", "running")
        file = tmp_path / "data/sandboxes/{}/kept/workspace/file"
        for text in ("first", "second", "third"):
            Path(str(file).format("s1")).write_text(text)
            kept = await ada.post("/api/sandboxes/s1/sync")
            assert kept.status_code == 200, kept.text
        restored = await ada.post("/api/sandboxes/s1/snapshots/1/restore")
        assert restored.status_code == 201, restored.text
        assert (await ada.post(f"/api/sandboxes/{restored.json()['id']}/wake")).status_code == 200
        await comes_to(ada, restored.json()["id"], "running")
        assert Path(str(file).format(restored.json()["id"])).read_text() == "first"
        assert len(limited.too_soon) - probing <= FEW, told(limited)
