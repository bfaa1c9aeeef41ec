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


# What such a bridge has loaded by the time of its first terminal, and what these modules defined.
LOADED = {
    "sandbox.bridge.agent": "Agent AgentFailed AgentHeld AgentRuns MAX_INJECTED",
    "sandbox.bridge.attachment": "BAD_FRAME Door PORTION_BYTES PROBLEMS_KEPT REPLACED SILENT",
    "sandbox.bridge.config": "Config ConfigError Limits MAX_CONFIG env_pair_is_usable parse_config read_config",
    "sandbox.bridge.handover": "EARLY_BYTES HandoverSocket PATHS Taker hand_over",
    "sandbox.bridge.lines": "LineSplitter",
    "sandbox.bridge.log": "BoundedLog ErrorLog JsonHandler log",
    "sandbox.bridge.notes": "NotesInUse TakenNotes",
    "sandbox.bridge.process": "Child READ_BYTES Reader Spawned Writer descendants describe_exit die_with"
    " guard_this_process kill_descendants kill_marked reap_adopted start_ticks",
    "sandbox.bridge.server": "Answer AnyName Bridge MAX_BODY Refused TokenGuard gone read_json",
    "sandbox.stream": "BACKLOG_BYTES Backlog Begin Cursor FRAME_COST Frames PINNED_BYTES RING_BYTES RUNS_KEPT Ring Run"
    " Step",
    "sandbox.wire": "Attach Changed Down EPOCH Epoch Inject Interrupt Kill Ledger MAX_CONTROL_UP MAX_DELIVERY MAX_DOWN"
    " MAX_LINE MAX_NUMBER MAX_REASON MAX_UP Ping Pong Problem Ready SIGNAL Seen Start Stop Taken Up WireError clip"
    " decode_down decode_up encode join_deliveries join_lines read_epoch read_flag read_match read_number read_object"
    " read_position split_deliveries split_lines",
}


@pytest.mark.parametrize("earlier", ["sandbox.bridge.terminals", "sandbox.bridge.transfers"])
def test_what_it_imports_needs_no_name_that_came_later(earlier: str) -> None:
    script = f"""
import importlib, sys, types
from sandbox.bridge.earlier import EARLIER
loaded = {{}}
for name, was in EARLIER.items():
    if was in {LOADED!r}:
        module = importlib.import_module(name)
        loaded[was] = types.ModuleType(was)
        vars(loaded[was]).update({{each: getattr(module, each, None) for each in {LOADED!r}[was].split()}})
for name in [name for name in sys.modules if name.startswith("sandbox.")]:
    del sys.modules[name]
sys.modules.update(loaded)
import {earlier}
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
