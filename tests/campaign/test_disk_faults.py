"""The disk is full, or fails: senders are told, nothing acknowledged is lost, and the gateway recovers by itself
where that is possible."""

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from tests.campaign.database import come_back, leave, on_postgres
from tests.campaign.size import seeded, sized
from tests.campaign.stage import Stage, staged
from tests.support.gateway import Gateway
from tests.support.launcher import UNTOUCHED, Launcher, Tampering
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

FULL = "storage_full"
FILE_BYTES = 1 << 20
# Messages taken before the disk was full are neither acknowledged nor refused until there is room: a sender that
# waits for all of them sends nothing that could be refused.
UNDER_WAY = 400


class SmallDisk:
    """8 MiB where this user may mount, that can be filled up and freed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab") as ballast:
            try:
                while os.write(ballast.fileno(), b"x" * 4096):
                    pass
            except OSError:
                pass

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", path], check=True)
    yield SmallDisk(path)
    subprocess.run(["umount", path], check=True)


def _told(stage: Stage, reason: str) -> int:
    return sum(why == reason for each in stage.everybody for why in each.refused.values())


async def _fill_and_free(stage: Stage, disk: SmallDisk, times: int) -> None:
    """Fill the disk, wait until senders are told so, free it, and wait until they are served again."""
    for _ in range(times):
        before = _told(stage, FULL)
        disk.fill()
        stage.journal.note("fault", kind="disk full")

        def are_told(before: int = before) -> bool:
            disk.fill()  # the room that the gateway freed in its log meanwhile: it has space for hundreds of messages
            return _told(stage, FULL) >= before + 3

        await until(are_told, "nacks", within=60)
        disk.free()
        served = sum(len(each.acked) + len(each.accepted) for each in stage.everybody)
        await until(
            lambda served=served: sum(len(e.acked) + len(e.accepted) for e in stage.everybody) > served + 10,  # type: ignore[misc]
            "served again",
            within=60,
        )


@pytest.mark.soak
async def test_a_full_disk_is_told_and_heals_by_itself(tmp_path: Path, disk: SmallDisk) -> None:
    seed, rng = seeded()
    store = f"sqlite:///{disk.path}/holdfast.db"
    async with Launcher() as launcher, staged(tmp_path, seed, rng, launcher=launcher, STORE=store) as stage:
        await stage.create(2, 2, 400_000, pace=0.001, pause=0.01, under_way=UNDER_WAY)
        async with stage.playing():
            await stage.progress(20)
            await _fill_and_free(stage, disk, sized(3, 20))
            stage.enough()
            await stage.all_settled()
        await stage.acquit("disk full")
        (await stage.check("disk full")).acquit("disk full", "nack storage_full")


# Only the queue's messages were looked at: a session that could not be loaded for lack of room showed nowhere.
async def test_a_gateway_that_cannot_load_sessions_for_lack_of_room_is_not_ready_until_it_can(
    tmp_path: Path, disk: SmallDisk
) -> None:
    async with (
        Gateway(tmp_path / "data", STORE=f"sqlite:///{disk.path}/holdfast.db") as gateway,
        gateway.http({}) as anybody,
        gateway.http() as ada,
    ):
        await gateway.create("s")
        assert (await ada.post("/api/sandboxes/s/sleep")).status_code == 200
        await gateway.restart()
        assert (await anybody.get("/ready")).status_code == 200
        disk.fill()
        with pytest.raises(InvalidStatus) as refused:
            async with gateway.chat("s"):
                pass
        assert refused.value.response.status_code == 503
        answer = await anybody.get("/ready")
        assert (answer.status_code, answer.json()["reasons"]) == (503, [FULL])
        disk.free()

        async def is_ready() -> bool:
            return (await anybody.get("/ready")).status_code == 200

        await until(is_ready, "room")
        async with gateway.chat("s") as socket:
            assert await socket.recv()


@pytest.mark.soak
async def test_a_full_disk_before_a_database_that_is_away_heals_too(
    tmp_path: Path, disk: SmallDisk, postgres_server: PostgresServer
) -> None:
    seed, rng = seeded()
    (tmp_path / "data").mkdir(mode=0o700)
    (disk.path / "spool.db").touch(0o600)
    (tmp_path / "data" / "spool.db").symlink_to(disk.path / "spool.db")  # the spool alone has little room
    async with Launcher() as launcher:
        staging = partial(staged, tmp_path, seed, rng, launcher=launcher)
        async with on_postgres(postgres_server, staging) as (stage, proxy):
            await stage.create(2, 2, 400_000, pace=0.001, pause=0.01, under_way=UNDER_WAY)
            async with stage.playing():
                await stage.progress(20)
                leave(stage, proxy)
                await _fill_and_free(stage, disk, sized(2, 10))
                come_back(stage, proxy)
                stage.enough()
                await stage.all_settled()
            await stage.acquit("spool's disk full")
            (await stage.check("spool's disk full")).acquit("disk full", "nack storage_full", "accepted")


@pytest.mark.soak
async def test_after_an_error_of_the_disk_the_gateway_ends_and_the_next_one_has_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    seed, rng = seeded()
    async with Launcher() as launcher, staged(tmp_path, seed, rng, launcher=launcher, LOG_LEVEL="error") as stage:
        gateway = stage.gateway
        await stage.create(2, 2, 400_000, pace=0.001, pause=0.002)
        async with stage.playing():
            for _ in range(sized(3, 30)):
                await gateway.kill()
                largest = max(path.stat().st_size for path in [*gateway.data_dir.glob("*.db*"), gateway.log_path])
                gateway.tampering = Tampering(file_bytes=largest + FILE_BYTES)
                await gateway.start()
                assert await gateway.wait(within=60) > 0, f"seed={seed}: it ended as if nothing were wrong"
                stage.journal.note("fault", kind="disk error")
            gateway.tampering = UNTOUCHED
            await gateway.start()
            stage.enough()
            await stage.all_settled()
        await stage.acquit("disk errors")
        (await stage.check("disk errors")).acquit("disk error", "resent")
