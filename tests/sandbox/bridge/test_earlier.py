"""A bridge outlives an upgrade: what it imports for its first terminal is the new code, on the classes it runs on."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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
