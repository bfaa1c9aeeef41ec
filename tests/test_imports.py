"""`make lint` refuses an import that points the wrong way, also one that does so through another module, and a module
that has no place among the layers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GATE = Path(sys.executable).with_name("lint-imports")
PACKAGES = ("gateway", "persistence", "sandbox", "sync")


def run_gate(tree: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"}
    command = [str(GATE), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("imports")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__", "page"))
    return copy


def test_the_copy_passes_the_gate(tree: Path) -> None:
    gate = run_gate(tree)
    assert gate.returncode == 0, gate.stdout + gate.stderr


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        (
            "persistence/queue/queue.py",
            "import gateway.config.settings",
            "persistence is not allowed to import gateway",
        ),
        ("sync/machine/state.py", "import persistence.record", "sync is not allowed to import persistence"),
        ("persistence/record.py", "import sync.format.keys", "persistence is not allowed to import sync"),
        ("persistence/record.py", "import sandbox.protocol.values", "persistence is not allowed to import sandbox"),
        ("sync/machine/driver.py", "import sandbox.client.agent_link", "sync is not allowed to import sandbox"),
        ("sync/machine/state.py", "import sync.snapshots.push", "sync.machine is not allowed to import sync.snapshots"),
        (
            "sandbox/bridge/agent/agent.py",
            "import sandbox.client.agent_link",
            "sandbox.bridge is not allowed to import sandbox.client",
        ),
        (
            "sandbox/protocol/agent_stream.py",
            "import sandbox.client.endpoint",
            "sandbox.bridge is not allowed to import sandbox.client",
        ),
        (
            "sandbox/agents/plain.py",
            "import sandbox.protocol.values",
            "sandbox.agents is not allowed to import sandbox.protocol",
        ),
        (
            "gateway/agents/transcript.py",
            "import sandbox.agents.catalogue",
            "gateway is not allowed to import sandbox.agents",
        ),
        (
            "sandbox/protocol/values.py",
            "import sandbox.ports.fleet",
            "sandbox.protocol is not allowed to import sandbox.ports",
        ),
        (
            "gateway/session/actor.py",
            "import gateway.http.responses",
            "gateway.session is not allowed to import gateway.http",
        ),
        (
            "gateway/protocol/close_codes.py",
            "import gateway.session.registry",
            "gateway.protocol is not allowed to import gateway.session",
        ),
        (
            "gateway/auth/policy.py",
            "import gateway.routing.route",
            "gateway.auth is not allowed to import gateway.routing",
        ),
        ("gateway/auth/tokens.py", "import gateway.http.access", "gateway.auth is not allowed to import gateway.http"),
        (
            "gateway/session/model/state.py",
            "import gateway.session.sandbox.driver",
            "no cycles between siblings BROKEN",
        ),
        ("gateway/loose.py", "", "- gateway.loose"),
        ("gateway/nodes/place.py", "", "- gateway.nodes"),
        ("sandbox/nodes/place.py", "", "- sandbox.nodes"),
        ("persistence/nodes/place.py", "", "- persistence.nodes"),
        ("sync/nodes/place.py", "", "- sync.nodes"),
        (
            "persistence/record.py",
            "import persistence.sqlite.store",
            "persistence.record is not allowed to import persistence.sqlite",
        ),
        (
            "sandbox/bridge/watch.py",
            "import sandbox.ports.terminals",
            "sandbox.bridge is not allowed to import sandbox.ports",
        ),
        ("sync/format/keys.py", "import sandbox.demo_agent", "sync is not allowed to import sandbox"),
        ("sync/format/keys.py", "import sandbox.tree.chunker", "sync is not allowed to import sandbox"),
        ("sync/format/keys.py", "import sandbox.ports.terminals", "sync is not allowed to import sandbox"),
        ("gateway/session/actor.py", "import tests.support.gateway", "gateway is not allowed to import tests"),
        ("sandbox/bridge/exec.py", "import bench.relay", "sandbox is not allowed to import bench"),
        ("gateway/protocol/text.py", "import importlib", "gateway is not allowed to import importlib"),
    ],
)
def test_an_import_against_the_grain_is_refused(tree: Path, module: str, line: str, broken: str) -> None:
    path = tree / module
    folder_is_new, before = not path.parent.exists(), path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    path.write_text(f"{before or ''}\n{line}\n")
    try:
        gate = run_gate(tree)
    finally:
        if folder_is_new:
            shutil.rmtree(path.parent)
        elif before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert gate.returncode == 1
    assert broken in gate.stdout
