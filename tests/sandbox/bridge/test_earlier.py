"""A bridge outlives an upgrade: what it imports for its first terminal is the new code, on the classes it runs on."""

import shutil
import subprocess
import sys
import tarfile
from dataclasses import fields
from pathlib import Path

import pytest

from sandbox.bridge.base.config import Limits
from sandbox.bridge.earlier import LATER_LIMITS
from sandbox.client.tree import BridgeTree
from tests.support.bridge import ROOT, at, running_bridge
from tests.support.terminal import viewing

RELEASE = ROOT / "tests/releases/0.1.0-48cc02e.tar.xz"  # the packages of that commit
# What was loaded has its earlier names alone, as in a bridge that was started before they changed.
STARTEDEARLIER = """
import importlib, sys
from sandbox.bridge.earlier import EARLIER
loaded = {earlier: importlib.import_module(name) for name, earlier in EARLIER.items()}
for name in [name for name in sys.modules if name.startswith("sandbox.")]:
    del sys.modules[name]
sys.modules.update(loaded)
"""


@pytest.mark.parametrize(
    ("earlier", "served", "shared"),
    [
        ("sandbox.bridge.terminals", "Terminals", "sandbox.bridge.terminal.routes"),
        ("sandbox.bridge.transfers", "Transfers", "sandbox.bridge.tree.routes"),
    ],
)
def test_a_bridge_that_was_started_earlier_gets_its_own_classes(earlier: str, served: str, shared: str) -> None:
    script = f"""{STARTEDEARLIER}
from {earlier} import {served}
routes = sys.modules["{shared}"]
assert routes.{served} is {served}
assert routes.Refused is loaded["sandbox.bridge.server"].Refused, "a refusal is caught by what the bridge runs on"
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


# The limits of the first release whose bridges may still run.
LIMITS = (
    "backlog_bytes queue_lines queue_bytes agent_log_bytes exec_output_bytes exec_at_once attach_seconds"
    " silence_seconds stop_input_seconds stop_term_seconds watches hint_seconds blind_hint_seconds heartbeat_seconds"
    " tree_silence_seconds drain_seconds terminals terminal_viewers terminal_ring_bytes terminal_scrollback"
    " terminal_hold_seconds terminal_exit_seconds terminal_idle_seconds"
)


def test_its_limits_get_what_came_later() -> None:
    later = {each.name: each.default for each in fields(Limits) if each.name not in LIMITS.split()}
    assert later == LATER_LIMITS


def upgrade(code: Path) -> None:
    """Put this tree's package in the place of the one that a bridge was started from."""
    shutil.rmtree(code / "sandbox")
    (code / "sandbox").symlink_to(ROOT / "sandbox")


@pytest.mark.parametrize("loaded", [False, True], ids=["tree not loaded", "tree loaded"])
async def test_a_bridge_of_the_release_before_opens_and_ends_its_first_terminal(tmp_path: Path, loaded: bool) -> None:
    """It could open it, and never end it: its limits have none for that. Its sandbox could not be put to sleep."""
    code = tmp_path / "code"
    with tarfile.open(RELEASE) as packed:
        packed.extractall(code, filter="data")
    with running_bridge(tmp_path, ["cat"], code=code, shell=["sh"]) as bridge:
        tree = BridgeTree(at(bridge.path))
        async with bridge.client() as client:
            assert (await client.get("/health")).status_code == 200
            if loaded:
                await tree.release()
            upgrade(code)
            assert (await client.post("/terminals/other")).status_code == 201
            assert (await client.delete("/terminals/other")).status_code == 204, bridge.log
        async with viewing(bridge) as viewer:
            viewer.type(b"echo $((6*7))up\r")
            await viewer.shows(b"42up")
            await tree.quiet()
            await viewer.until(lambda: viewer.exit)
        assert "Error" not in bridge.log
