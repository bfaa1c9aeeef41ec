"""The way out of a container: its bridge's listener, handed out over the same socket as all else."""

import asyncio
from pathlib import Path

import pytest

from sandbox.ports.sandbox import Command
from sandbox.providers.container.kits import Kits
from tests.contract.sandbox import spec
from tests.sandbox.containers import opened
from tests.support.engine import DockerEngine


@pytest.mark.parametrize("network", ["none", "outbound"])
async def test_a_container_hands_its_listener_out_and_has_no_other_network(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits, network: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\n")
        writer.write(b"from outside\n")
        await writer.drain()
        writer.close()

    async with opened(docker_engine, tmp_path, kits) as fleet:
        await fleet.start(spec(network=network))
        sandbox = fleet.sandbox("s1")
        for _ in range(2):  # it is kept inside, and given again
            listener = await sandbox.egress()
            assert listener is not None
            async with await asyncio.start_server(answer, sock=listener):
                ask = Command(("sh", "-c", "echo hello | nc 127.0.0.1 3128"), timeout_seconds=60)
                assert (await sandbox.exec(ask)).stdout == "from outside\n"
        seen = await sandbox.exec(Command(("sh", "-c", "cat /proc/net/dev; env"), timeout_seconds=60))
        assert "HTTPS_PROXY=http://127.0.0.1:3128" in seen.stdout
        assert [line.split(":")[0].strip() for line in seen.stdout.splitlines()[2:3]] == ["lo"]
