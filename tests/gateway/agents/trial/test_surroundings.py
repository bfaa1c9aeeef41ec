"""How each agent is led to the built-in model."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.catalogue import AGENTS, KNOWN
from gateway.agents.trial.answers import MODEL
from gateway.agents.trial.surroundings import KEY, surroundings

ADDRESS = "http://127.0.0.1:4000"


@given(st.sampled_from(sorted(KNOWN)), st.integers(1, 65535))
def test_each_agent_is_given_the_address_and_a_key(name: str, port: int) -> None:
    around = surroundings(name, f"http://127.0.0.1:{port}")
    everything = json.dumps([dict(around.env), dict(around.files)])
    assert f"http://127.0.0.1:{port}" in everything
    assert KEY in everything
    assert all(not path.startswith("/") and ".." not in path for path in around.files)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_what_it_reads_can_be_read(agent: object) -> None:
    around = surroundings(getattr(agent, "name", ""), ADDRESS)
    for path, content in around.files.items():
        (tomllib if path.endswith(".toml") else json).loads(content)


def test_codex_is_told_by_its_configuration() -> None:
    config = tomllib.loads(surroundings("codex", ADDRESS).files[".codex/config.toml"])
    assert config["model_providers"]["trial"]["base_url"] == f"{ADDRESS}/v1"
    assert config["model"] == MODEL
