"""No attempt to get out of a contained sandbox succeeds; the same attempts succeed in a trusted one."""

import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandbox
from sandbox.ports.fleet import SandboxSpec
from sandbox.providers.local.fleet import LocalFleet
from tests.sandbox.escape import attempts
from tests.sandbox.local import command, opened, spec

CANARY = f"canary-{secrets.token_hex(8)}"

# What any user's plain process may do, whoever runs the tests.
TRUSTED_CAN = {
    "read a secret of the gateway",
    "read the gateway's note of this bridge",
    "read another session's workspace",
    "write into another session's workspace",
    "list the data directory",
    "see the sandbox's directory above the kept one",
    "put another socket in the bridge's place",
    "read a secret through a symbolic link in the workspace",
    "read a secret through a hard link in the workspace",
    "see the host's run directory",
    "reach /sys",
    "learn the host's name",
    "see a process of the host",
    "read a process's environment",
    "signal a process of the host",
    "hold on to a process of the host",
    "find shared memory of the host",
    "gain privileges by running a setuid program",
    "reach a server on the host's loopback",
    "reach an abstract socket of the host",
    "reach a socket file of the host",
    "reach another session's bridge",
    "make a program setuid",
    "make an open program setuid",
    "make a program setuid by fchmodat",
    "open a new setuid file",
    "make a setuid node",
}


@pytest.fixture
def targets(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Things of the host that belong to this test: a secret, a process, servers, shared memory."""
    data = tmp_path / "data"
    (data / "secrets").mkdir(parents=True)
    secret = data / "secrets" / "jwt_secret"
    secret.write_text(CANARY)
    abstract = f"holdfast-{secrets.token_hex(8)}"
    key = secrets.randbits(30)
    libc = ctypes.CDLL(None, use_errno=True)
    shared = libc.shmget(key, 4096, 0o1600)
    assert shared >= 0
    script = "import sys; sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, CANARY],
        env={"SECRET": CANARY},
        cwd=secret.parent,
        stdin=subprocess.PIPE,
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as unnamed,
        socket.socket(socket.AF_UNIX) as named,
    ):
        unnamed.bind("\0" + abstract)
        unnamed.listen()
        named.bind(str(tmp_path / "host.sock"))
        named.listen()
        try:
            yield {
                "canary": CANARY,
                "data": str(data),
                "secret": str(secret),
                "abstract": abstract,
                "port": server.getsockname()[1],
                "socket_file": str(tmp_path / "host.sock"),
                "pid": process.pid,
                "shm_key": key,
                "hostname": socket.gethostname(),
            }
        finally:
            libc.shmctl(shared, 0, None)
            process.kill()
            process.communicate()


async def escapes(level: str, targets: dict[str, Any]) -> dict[str, str]:
    """Run every attempt in a sandbox of this level; return those that succeeded."""
    data = Path(targets["data"])
    fleet = LocalFleet(data, level=level)
    await fleet.open()
    try:
        for session_id in ("victim", "attacker"):
            await fleet.start(SandboxSpec(session_id, 1, ("true",)))
        (data / "sandboxes/victim/kept/workspace/private").write_text(CANARY)
        (data / "sandboxes/attacker/kept/workspace/attempts.py").write_text(Path(attempts.__file__).read_text())
        notes = {
            name: json.loads((data / f"sandboxes/{name}/bridge.json").read_bytes()) for name in ("victim", "attacker")
        }
        told = {
            **targets,
            "note": str(data / "sandboxes/attacker/bridge.json"),
            "other_file": str(data / "sandboxes/victim/kept/workspace/private"),
            "socket": str(data / "run" / notes["attacker"]["socket"]),
            # Its own path would be too long for a socket address; every process with a look at the host has a root.
            "other_socket": os.path.relpath(
                data / "run" / notes["victim"]["socket"], data / "sandboxes/attacker/kept/workspace"
            ),
            "code": "/holdfast-code/sandbox" if level == "contained" else os.path.dirname(sandbox.__file__ or ""),
        }
        done = await command(fleet, "attacker", [sys.executable, "attempts.py", json.dumps(told)])
        assert done.exit_code == 0, done.stderr
        results: dict[str, str | None] = json.loads(done.stdout)
    finally:
        for session_id in ("victim", "attacker"):
            await fleet.sandbox(session_id).destroy()
        await fleet.close()
    assert len(results) == len(attempts.ATTEMPTS) >= 40
    return {name: got for name, got in results.items() if got is not None}


async def test_nothing_gets_out_of_a_contained_sandbox(targets: dict[str, Any]) -> None:
    assert await escapes("contained", targets) == {}


async def test_the_same_attempts_succeed_where_nothing_holds_them(targets: dict[str, Any]) -> None:
    succeeded = await escapes("trusted", targets)
    assert TRUSTED_CAN - succeeded.keys() == set()


@pytest.mark.parametrize("network", ["none", "outbound"])
async def test_a_process_writes_only_its_own_part_of_proc(network: str, tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec(network=network))
        raised = await command(fleet, "s1", ["sh", "-c", "echo 1000 > /proc/self/oom_score_adj"])
        assert "Read-only file system" not in raised.stderr, raised
        scores = await command(fleet, "s1", ["sh", "-c", "cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj"])
        own, bridge = scores.stdout.split()
        ours = Path("/proc/self/oom_score_adj").read_text().strip()
        assert (own, bridge) == ("1000", ours)
