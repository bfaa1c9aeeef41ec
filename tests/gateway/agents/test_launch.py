"""What is run for a choice, and what stands in where nothing can be."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.catalogue import ACP, AGENTS, KNOWN, NAMES, NODE_VERSION
from gateway.agents.choice import AgentChoice
from gateway.agents.launch import NO_AGENT, AgentLaunch, InstalledAgent, launch, needs_install, problem, unreadable
from sandbox.agents.core import VERSION_IN as READ_VERSION_IN

PYTHON = "/usr/bin/python3"
CLAUDE = InstalledAgent("claude-code", "2.0.1", "node_modules/x/claude", "glibc")
PI = InstalledAgent("pi", "0.74.2", "node_modules/pi/cli.js", "glibc")
ALL = ("plain", ACP, *KNOWN)
ABSENT = (PYTHON, "-m", "sandbox.absent_agent")


def test_a_command_runs_as_it_is() -> None:
    assert launch(AgentChoice(command=("mine", "-x")), None, PYTHON, has_node=False, cores=ALL) == AgentLaunch(
        ("mine", "-x")
    )


def test_what_is_built_in_needs_nothing() -> None:
    assert launch(AgentChoice("demo"), None, PYTHON, has_node=False, cores=ALL).argv == (
        PYTHON,
        "-m",
        "sandbox.demo_agent",
    )
    none = launch(AgentChoice("none"), None, PYTHON, has_node=False, cores=ALL)
    assert none.argv == (*ABSENT, "no_agent", NO_AGENT)
    assert not needs_install(AgentChoice("demo"))
    assert needs_install(AgentChoice("pi", "0.74.2"))


def test_an_installed_agent_runs_from_where_it_is_mounted() -> None:
    found = launch(AgentChoice("claude-code"), CLAUDE, PYTHON, has_node=False, cores=ALL)
    assert found.argv == ("/holdfast-agents/claude-code/2.0.1/node_modules/x/claude",)
    assert (found.core, found.libc, found.env["DISABLE_AUTOUPDATER"]) == ("claude-code", "glibc", "1")
    assert found.env[READ_VERSION_IN] == "2.0.1", "for cores of agents that do not say it"


def test_an_agent_for_node_runs_by_the_node_that_lies_beside_it() -> None:
    found = launch(AgentChoice("pi", "0.74.2"), PI, PYTHON, has_node=True, cores=ALL)
    node = f"/holdfast-agents/node/{NODE_VERSION}/bin/node"
    assert found.argv == (node, "/holdfast-agents/pi/0.74.2/node_modules/pi/cli.js")
    gemini = launch(AgentChoice("gemini"), InstalledAgent("gemini", "1", "g.js"), PYTHON, has_node=True, cores=ALL)
    assert (gemini.argv[2:], gemini.core) == (("--acp", "--skip-trust"), ACP)


def test_a_command_that_speaks_acp_gets_that_core() -> None:
    choice = AgentChoice(ACP, command=("mine", "--acp"))
    assert problem(choice, None, has_node=False, cores=ALL) is None
    assert launch(choice, None, PYTHON, has_node=False, cores=ALL) == AgentLaunch(("mine", "--acp"), ACP)


def test_what_is_not_installed_names_the_command_that_installs_it() -> None:
    wrong = problem(AgentChoice("claude-code"), None, has_node=False, cores=ALL)
    assert wrong is not None
    assert wrong.code == "agent_not_installed"
    assert wrong.told == "Claude Code is not installed: run `holdfast agents install claude-code`"
    assert launch(AgentChoice("claude-code"), None, PYTHON, has_node=False, cores=ALL).argv == (
        *ABSENT,
        wrong.code,
        wrong.told,
    )
    one = problem(AgentChoice("pi", "0.74.2"), None, has_node=True, cores=ALL)
    assert one is not None
    assert one.told == "pi 0.74.2 is not installed: run `holdfast agents install pi@0.74.2`"
    no_node = problem(AgentChoice("pi"), PI, has_node=False, cores=ALL)
    assert no_node is not None
    assert no_node.told.endswith("run `holdfast agents install pi@0.74.2`")


@pytest.mark.parametrize("choice", [AgentChoice("pi"), AgentChoice(ACP, command=("mine",))], ids=lambda each: each.name)
def test_an_agent_that_no_core_speaks_with_is_not_offered(choice: AgentChoice) -> None:
    wrong = problem(choice, PI, has_node=True, cores=["plain"])
    assert wrong is not None
    assert wrong.code == "agent_not_built"
    assert launch(choice, PI, PYTHON, has_node=True, cores=["plain"]).argv == (*ABSENT, wrong.code, wrong.told)


def test_a_name_of_another_version_says_so() -> None:
    argv = unreadable(PYTHON, "later-agent").argv
    assert argv[:4] == (*ABSENT, "agent_unknown")
    assert "later-agent" in argv[4]


@given(st.sampled_from(NAMES), st.booleans(), st.booleans(), st.sets(st.sampled_from(["plain", ACP, *KNOWN])))
def test_whatever_is_chosen_something_runs(name: str, there: bool, has_node: bool, cores: set[str]) -> None:
    found = InstalledAgent(name, "1", "program") if there else None
    got = launch(AgentChoice(name), found, PYTHON, has_node=has_node, cores=cores | {"plain"})
    wrong = problem(AgentChoice(name), found, has_node=has_node, cores=cores | {"plain"})
    built_in = got.argv[0] == PYTHON
    assert built_in == (name not in KNOWN or wrong is not None)
    assert built_in or PurePosixPath(got.argv[-1 - len(KNOWN[name].arguments)]).name == "program"
    assert len(AGENTS) == len(KNOWN)
