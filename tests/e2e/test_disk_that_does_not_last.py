"""The recipe of deploy/README.md for disks that do not last: Postgres, a bucket, and secrets as settings."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.s3 import S3Place

SECRETS = {name: name.lower() * 4 for name in ("JWT_SECRET", "API_TOKEN", "INTERNAL_TOKEN", "RELAY_SECRET")}


class Elsewhere(Gateway):
    """It keeps all that is promised in a database and a bucket."""

    def __init__(self, data_dir: Path, database: str, place: S3Place) -> None:
        super().__init__(data_dir, STORE=database, OBJECTS_UNCHECKED="true", **SECRETS)  # its check takes seconds
        self._place = place

    def environment(self) -> dict[str, str]:
        return super().environment() | self._place.environ


async def test_what_is_promised_outlives_the_disk(tmp_path: Path, postgres_url: str, s3_place: S3Place) -> None:
    """Once after an orderly stop, once after one that nobody announced."""

    @asynccontextmanager
    async def on_a_new_disk(name: str) -> AsyncIterator[tuple[Elsewhere, httpx.AsyncClient, Path]]:
        async with Elsewhere(tmp_path / name, postgres_url, s3_place) as gateway:
            credentials = given or gateway.bearer()
            given.update(credentials)
            async with gateway.http(credentials) as ada:
                await gateway.create("s1")
                await ada.post("/api/sandboxes/s1/wake")
                await comes_to(ada, "s1", "running")
                yield gateway, ada, tmp_path / name / "sandboxes/s1/kept/workspace/file"
        shutil.rmtree(tmp_path / name)

    given: dict[str, str] = {}  # who signed in on the first disk stays signed in
    async with on_a_new_disk("first") as (gateway, _, file):
        await tell(gateway, "one")
        file.write_text("kept by the stop")
        assert await gateway.terminate() == 0
    async with on_a_new_disk("second") as (gateway, ada, file):
        assert file.read_text() == "kept by the stop"
        await tell(gateway, "two")
        file.write_text("kept by a sync")
        assert (await ada.post("/api/sandboxes/s1/sync")).status_code == 200
        await gateway.kill()
    async with on_a_new_disk("third") as (gateway, _, file):
        assert file.read_text() == "kept by a sync"
        records = await gateway.messages("s1")
        assert [record["content"] for record in records if record["role"] == "user"] == ["one", "two"]


async def tell(gateway: Gateway, content: str) -> None:
    """Say it, and return when that is stored and answered."""
    async with gateway.chat("s1") as socket:
        await hear(socket, "welcome")
        await say(socket, "message", cid=content, content=content)
        await hear(socket, lambda frame: frame["type"] == "ack" and frame["stage"] == "stored")
        await hear(socket, "done")
