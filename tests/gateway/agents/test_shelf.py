"""What is installed, as a gateway looks at it."""

import json
from pathlib import Path

import pytest

from gateway.agents.agents import Agents
from gateway.agents.catalogue import KNOWN, NAMES, NODE_VERSION
from gateway.agents.choice import AgentChoice
from gateway.agents.launch import InstalledAgent
from gateway.agents.shelf import CURRENT, NOTE, AgentShelf

CORES = ("plain", "pi", "claude-code")


@pytest.fixture
def shelf(tmp_path: Path) -> AgentShelf:
    shelf = AgentShelf(tmp_path / "agents")
    shelf.make()
    return shelf


def put(shelf: AgentShelf, name: str, version: str, *, current: bool = True) -> None:
    place = shelf.place(name, version)
    place.mkdir(parents=True)
    (place / NOTE).write_text(json.dumps({"program": "bin/it", "libc": "glibc"}))
    if current:
        (shelf.directory / name / CURRENT).symlink_to(version)


def test_an_empty_shelf_has_nothing(tmp_path: Path) -> None:
    shelf = AgentShelf(tmp_path / "not there")
    assert (shelf.find("pi"), shelf.find("pi", "1"), shelf.current("pi"), shelf.versions("pi")) == (None, None, "", [])
    assert not shelf.has_node


def test_the_data_directory_stays_private_if_it_is_made_for_agents(tmp_path: Path) -> None:
    AgentShelf(tmp_path / "data" / "agents").make()
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("data", "data/agents")] == [0o700, 0o755]


def test_what_is_installed_is_found_by_its_version_or_as_the_current_one(shelf: AgentShelf) -> None:
    put(shelf, "pi", "0.87.1")
    put(shelf, "pi", "0.74.2", current=False)
    assert shelf.find("pi") == InstalledAgent("pi", "0.87.1", "bin/it", "glibc")
    assert shelf.find("pi", "0.74.2") == InstalledAgent("pi", "0.74.2", "bin/it", "glibc")
    assert shelf.versions("pi") == ["0.74.2", "0.87.1"]
    assert shelf.find("pi", "0.1") is None


def test_what_only_looks_installed_is_not(shelf: AgentShelf) -> None:
    shelf.place("pi", "1.0").mkdir(parents=True)
    shelf.place("pi", "2.0").mkdir()
    (shelf.place("pi", "2.0") / NOTE).write_text('{"program"')
    (shelf.directory / "pi" / CURRENT).symlink_to("1.0")
    assert (shelf.versions("pi"), shelf.find("pi")) == ([], None)
    put(shelf, "unknown", "1.0")
    assert shelf.find("unknown") is None


def test_a_link_that_leads_out_is_not_followed(shelf: AgentShelf, tmp_path: Path) -> None:
    elsewhere = AgentShelf(tmp_path)
    put(elsewhere, "other", "1.0", current=False)
    (shelf.directory / "pi").mkdir()
    (shelf.directory / "pi" / CURRENT).symlink_to("../../other/1.0")
    assert shelf.find("pi") is None


def test_the_agents_are_listed_with_what_there_is_of_them(shelf: AgentShelf) -> None:
    put(shelf, "pi", "0.87.1")
    put(shelf, "claude-code", "9.9.9")
    listed = {agent.name: agent for agent in Agents(shelf=shelf, cores=CORES).listed()}
    assert tuple(listed) == NAMES
    assert (listed["demo"].gap, listed["none"].gap, listed["demo"].version) == (None, None, "")
    claude, pi = listed["claude-code"], listed["pi"]
    assert (claude.installed, claude.current, claude.gap) == (["9.9.9"], "9.9.9", None)
    assert claude.version == KNOWN["claude-code"].version
    assert pi.gap is not None, "its Node.js is missing"
    shelf.node.parent.mkdir(parents=True)
    shelf.node.touch(0o755)
    assert NODE_VERSION in str(shelf.node)
    assert Agents(shelf=shelf, cores=CORES).problem(AgentChoice("pi")) is None
    codex = listed["codex"].gap
    assert codex is not None
    assert codex.code == "agent_not_built"
    assert [agent.installed for agent in Agents().listed()] == [[]] * len(NAMES)


def test_what_another_version_stored_is_answered_in_words() -> None:
    agents = Agents()
    assert "sandbox.absent_agent" in agents.launch(None, "demo@7").argv
    assert agents.launch(("own",), None).argv == ("own",)
    assert agents.launch(None, None).argv[-1] == "sandbox.demo_agent"


def test_only_who_names_an_agent_is_refused_it(shelf: AgentShelf) -> None:
    agents = Agents(AgentChoice("claude-code"), shelf, CORES)
    assert agents.unavailable(None) is None
    assert agents.unavailable("none") is None
    refused = agents.unavailable("claude-code")
    assert refused is not None
    assert refused.code == "agent_not_installed"
