"""What npm is given, and where a program is then."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.catalogue import AGENTS, KNOWN, NODE_VERSION
from gateway.agents.install.package_files import lock_name, manifest, program_of, script_by_node
from tests.support.agent_locks import LOCKS, packages

PI = KNOWN["pi"]
PACKAGE = PI.packages[""]
NATIVE = KNOWN["opencode"].packages["linux-x64"]


def test_a_package_is_asked_for_at_one_version() -> None:
    codex = KNOWN["codex"].packages["linux-x64"]
    asked = json.loads(manifest(codex, "0.169.0"))["dependencies"]
    assert asked == {"@openai/codex-linux-x64": "npm:@openai/codex@0.169.0-linux-x64"}
    assert lock_name(codex, "0.169.0") == "@openai+codex-linux-x64@0.169.0.json"


def test_locks_are_shipped_and_name_no_registry() -> None:
    """What the registry lacks has none; `python -m tests.support.agent_locks` writes the others."""
    shipped = {path.name for path in LOCKS.glob("*.json")}
    assert shipped <= {lock_name(package, version) for package, version, _ in packages()}
    for agent in AGENTS:
        for version in agent.versions:
            package = agent.package("linux-x64")
            assert package is not None
            lock = json.loads((LOCKS / lock_name(package, version)).read_bytes())
            entries = {name: entry for name, entry in lock["packages"].items() if name}
            assert f"node_modules/{package.name}" in entries
            assert all(entry["integrity"].startswith("sha512-") for entry in entries.values())
            assert not any("resolved" in entry for entry in entries.values())
            assert lock["packages"][""]["dependencies"] == json.loads(manifest(package, version))["dependencies"]
    assert f"=={NODE_VERSION} " in (LOCKS / "node.txt").read_text()


@pytest.mark.parametrize("given", [{"bin": {"pi": "./dist/cli.js"}}, {"bin": "dist/cli.js"}], ids=str)
def test_a_program_is_where_its_package_says(given: dict[str, Any]) -> None:
    assert program_of(PI, PACKAGE, given) == "node_modules/@earendil-works/pi-coding-agent/dist/cli.js"
    assert program_of(KNOWN["opencode"], NATIVE, given) == "node_modules/opencode-linux-x64/bin/opencode"


@given(st.dictionaries(st.text(), st.none() | st.text() | st.integers()) | st.none() | st.text() | st.integers())
def test_a_program_is_never_outside_of_its_package(given: Any) -> None:
    for described in ({}, {"bin": given}, {"bin": {"pi": given}}, {"bin": {"pi": "../../x"}}):
        found = program_of(PI, PACKAGE, described)
        assert found is None or (found.startswith("node_modules/") and "/../" not in f"/{found}/")


def test_a_program_for_node_runs_by_ours() -> None:
    script = script_by_node("node_modules/pi/cli.js")
    assert f'exec "$here/../../../node/{NODE_VERSION}/bin/node" "$here/../node_modules/pi/cli.js" "$@"' in script
