"""The attempts to get out of a local sandbox, made in a container."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from sandbox.ports.sandbox import Command
from sandbox.providers.container.document import KIT
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.note import read_note
from sandbox.providers.local.layout import SandboxHome
from tests.contract.sandbox import spec
from tests.sandbox.containers import opened
from tests.sandbox.escape import attempts
from tests.sandbox.providers.local.test_escape import CANARY, targets
from tests.support.engine import DockerEngine

__all__ = ["targets"]

# What is there and is the container's own: its control groups, read-only, by which runtimes size themselves, and the
# message queues of its own IPC namespace.
OWN = {"reach the control groups", "open a device of the host"}


async def test_nothing_gets_out_of_a_container(
    targets: dict[str, Any], docker_engine: DockerEngine, kits: Kits
) -> None:
    data = Path(targets["data"])
    async with opened(docker_engine, data, kits) as fleet:
        for session_id in ("victim", "attacker"):
            await fleet.start(spec(session_id))
        notes = {name: read_note(SandboxHome(data, name)) for name in ("victim", "attacker")}
        workspace = SandboxHome(data, "attacker").workspace
        private = SandboxHome(data, "victim").workspace / "private"
        private.write_text(CANARY)
        (workspace / "attempts.py").write_text(Path(attempts.__file__).read_text())
        assert notes["victim"] is not None
        assert notes["attacker"] is not None
        told = {
            **targets,
            "note": str(SandboxHome(data, "attacker").note),
            "other_file": str(private),
            "socket": str(data / "run" / notes["attacker"].socket),
            "other_socket": os.path.relpath(data / "run" / notes["victim"].socket, workspace),
            "code": f"{KIT}/packages/sandbox",
        }
        argv = (sys.executable, "attempts.py", json.dumps(told))
        done = await fleet.sandbox("attacker").exec(Command(argv, timeout_seconds=120))
        assert done.exit_code == 0, done.stderr
        results: dict[str, str | None] = json.loads(done.stdout)
        assert len(results) == len(attempts.ATTEMPTS)
        assert {name: got for name, got in results.items() if got is not None and name not in OWN} == {}
        assert results["open a device of the host"] == "['mqueue']"
        script = "cat /proc/self/cgroup; for each in /sys/fs/cgroup/*/; do mkdir $each/mine 2>/dev/null && exit 3; done"
        groups = await fleet.sandbox("attacker").exec(Command(("sh", "-c", f"{script}; exit 0"), timeout_seconds=60))
        assert groups.exit_code == 0
        assert {line.partition("::")[2] or line.split(":")[2] for line in groups.stdout.split()} == {"/"}
