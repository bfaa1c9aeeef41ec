"""What is known of agents by name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.catalogue import AGENTS, CACHES, CORES, KNOWN, NAMES, Package, platform
from sandbox.agents import catalogue as bridge
from sandbox.tree.ignore import check_patterns


def test_the_cores_that_are_offered_are_those_of_the_bridge() -> None:
    assert set(CORES) == set(bridge.CORES)


def test_a_platform_is_called_as_packages_call_it() -> None:
    found = [platform(machine, musl=musl) for machine in ("x86_64", "aarch64") for musl in (False, True)]
    assert found == ["linux-x64", "linux-x64-musl", "linux-arm64", "linux-arm64-musl"]


@given(st.sampled_from(AGENTS), st.sampled_from(["x86_64", "aarch64", "riscv64"]), st.booleans())
def test_an_agent_has_packages_for_the_machines_there_are(agent: object, machine: str, musl: bool) -> None:
    known = KNOWN[getattr(agent, "name", "")]
    package = known.package(platform(machine, musl=musl))
    assert (package is None) == (machine == "riscv64" and not known.by_node)


def test_packages_are_asked_for_by_their_own_names() -> None:
    assert KNOWN["claude-code"].package("linux-x64") == Package(
        "@anthropic-ai/claude-code-linux-x64", "{version}", "claude"
    )
    codex = Package(
        "@openai/codex-linux-arm64",
        "npm:@openai/codex@{version}-linux-arm64",
        "vendor/aarch64-unknown-linux-musl/bin/codex",
    )
    assert KNOWN["codex"].package("linux-arm64") == KNOWN["codex"].package("linux-arm64-musl") == codex
    assert KNOWN["opencode"].package("linux-x64-musl") == Package(
        "opencode-linux-x64-musl", "{version}", "bin/opencode"
    )


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_each_agent_can_be_told_from_the_others(agent: object) -> None:
    known = KNOWN[getattr(agent, "name", "")]
    assert re.fullmatch(r"[a-z][a-z-]*", known.name)
    assert known.versions[0] == known.version
    assert len(set(NAMES)) == len(NAMES)
    assert sum(each.program == known.program for each in AGENTS) == 1


def test_what_homes_do_not_keep_is_written_as_patterns() -> None:
    check_patterns(CACHES)
    assert ".codex/logs_*" in CACHES
