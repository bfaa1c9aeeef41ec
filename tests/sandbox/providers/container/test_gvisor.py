"""Containers in gVisor, where no listening socket gets in: the contracts, and what is different.

Its sandboxes have a kernel of their own, so what a bridge can lack is seen here: ends of programs without `pidfd_open`,
processes without a list of children.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox.ports.fleet import Fleet
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Command, SandboxFailed
from sandbox.ports.terminals import SandboxTerminals
from sandbox.providers.container.kits import Kits
from sandbox.providers.local.layout import SandboxHome
from tests.contract.fleet import FleetContract
from tests.contract.sandbox import SandboxContract, attach, run_agent, spec
from tests.contract.sandbox_terminals import SandboxTerminalsContract
from tests.contract.sandbox_tree import SandboxTreeContract
from tests.gateway.http.sessions.test_lifecycle import comes_to
from tests.sandbox.containers import UID, ContainerHands, fleet_on, named, opened
from tests.sandbox.local import python
from tests.support.bridge import Owner
from tests.support.chat import hear, say
from tests.support.engine import DockerEngine, whats_missing
from tests.support.gateway import Gateway
from tests.support.waiting import until

# It can limit nothing on control groups of the first version, and there is no hardware to help it.
SANDBOXED = ["--network=none", "--ignore-cgroups", "--platform=ptrace"]
RUNTIMES = {
    "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": [*SANDBOXED, "--fsgofer-host-uds"]},
    "runsc-closed": {"path": "/usr/bin/runsc", "runtimeArgs": SANDBOXED},
}


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    if reason := whats_missing(*DockerEngine.programs, "runsc"):
        pytest.skip(reason)
    with DockerEngine(runtimes=RUNTIMES) as engine:
        yield engine


class TestGvisorFleet(FleetContract, SandboxContract):
    @pytest.fixture
    async def fleet(self, tmp_path: Path, engine: DockerEngine, kits: Kits) -> AsyncIterator[Fleet]:
        async with opened(engine, tmp_path, kits, runtime="runsc") as fleet:
            assert (fleet.name, fleet.level) == ("docker", "isolated")
            yield fleet


@pytest.fixture(scope="module")
async def gvisor(tmp_path_factory: pytest.TempPathFactory, engine: DockerEngine, kits: Kits) -> AsyncIterator[Fleet]:
    async with opened(engine, tmp_path_factory.mktemp("gvisor"), kits, runtime="runsc") as fleet:
        await fleet.start(spec())
        yield fleet


class TestGvisorTerminals(SandboxTerminalsContract):
    @pytest.fixture
    def terminals(self, gvisor: Fleet) -> SandboxTerminals:
        return gvisor.sandbox("s1").terminals()

    @pytest.fixture
    def absent(self, gvisor: Fleet) -> SandboxTerminals:
        return gvisor.sandbox("another").terminals()


KNOCK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.settimeout(30)
    door.connect("/holdfast-door/door")
    door.sendall(b"x" * 43)
    print(door.recv(1))
"""


async def test_another_gateway_finds_the_bridge_and_nobody_else_is_let_in(
    engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    async with opened(engine, tmp_path, kits, runtime="runsc", propose=named("house")) as fleet:
        await fleet.start(spec())
        owner = Owner()
        epoch = await run_agent(await attach(fleet, owner), owner)
        knocked = await fleet.sandbox("s1").exec(Command(python(KNOCK), timeout_seconds=60))
        assert knocked.stdout == "b''\n", "whatever runs inside sees the door, and has no token"
        link = await attach(fleet, Owner())
        link.close()

        await fleet.close()
        second = fleet_on(engine, tmp_path, kits, runtime="runsc", propose=named("house"))
        await second.open()
        assert await second.running() == ["s1"]
        later = Owner()
        link = await second.sandbox("s1").connect(later, None)
        await until(lambda: later.hellos and later.lines() == [b"start"])
        assert later.epoch == epoch
        link.close()
        await second.sandbox("s1").stop()
        with pytest.raises(LinkRefused):
            await second.sandbox("s1").connect(Owner(), None)
        assert list((tmp_path / "doors").rglob("door")) == []
        await second.close()


async def test_a_restored_tree_is_proven_by_the_next_start(engine: DockerEngine, tmp_path: Path, kits: Kits) -> None:
    """Under gVisor, each start gives files new inode numbers, and a watch does not report writes through another mount.
    So the bridge does not rely on either. The rest of the contract of trees passes, too."""
    async with opened(engine, tmp_path, kits, runtime="runsc") as fleet:
        contract, hands = SandboxTreeContract(), ContainerHands(tmp_path)
        await contract.test_no_program_starts_after_a_restore_that_it_would_not_see(fleet, hands)
        link = await attach(fleet, Owner())
        link.close()
        log = SandboxHome(tmp_path, "s1").bridge_log
        await until(lambda: "watch.blind" in log.read_text(), log.read_text)


async def test_a_session_sleeps_wakes_and_survives_its_gateway(engine: DockerEngine, tmp_path: Path) -> None:
    there = {"DOCKER": f"unix://{engine.socket}", "DOCKER_IMAGE": engine.image, "DOCKER_RUNTIME": "runsc"}
    async with Gateway(tmp_path / "data", SANDBOX="docker", **there) as gateway, gateway.http() as ada:
        assert (await gateway.create("s1"))["level"] == "isolated"
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="hello")
            await hear(socket, "done")
        file = SandboxHome(gateway.data_dir, "s1").workspace / "file"
        file.write_text("kept")
        os.chown(file, UID, UID)
        note = SandboxHome(gateway.data_dir, "s1").note
        before = note.read_bytes()
        await gateway.restart(kill=True)
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="is anybody there")
            await hear(socket, "done")
        assert note.read_bytes() == before, "the same sandbox all the time"
        assert (await ada.post("/api/sandboxes/s1/sleep")).status_code == 200
        await comes_to(ada, "s1", "sleeping")
        async with gateway.chat("s1") as socket:
            await say(socket, "message", content="awake")
            await hear(socket, "done")
        assert (await ada.get("/files/s1/file")).text == "kept"
        assert (await ada.delete("/api/sandboxes/s1?purge=1")).status_code == 200
        assert not SandboxHome(gateway.data_dir, "s1").root.exists()


async def test_a_runtime_that_is_closed_to_sockets_of_the_host_is_refused_in_words(
    engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    fleet = fleet_on(engine, tmp_path, kits, runtime="runsc-closed")
    with pytest.raises(SandboxFailed, match=r'runsc-closed lets no sandbox connect .*: add "--host-uds=open"'):
        await fleet.open()
    assert "--host-uds=open" in ((await fleet.health()).problem or "")
    await fleet.close()
