"""How programs in a sandbox are led to models by way of the proxy."""

import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.model_access import CODEX_IS_OURS, PLACEHOLDER, PROXY, ModelAccess, model_access

ALL = ("anthropic", "openai", "google", "openrouter")


def test_every_agent_is_led_to_the_proxy_with_a_placeholder() -> None:
    access = model_access([*ALL, "github", "house"])
    assert access.env["ANTHROPIC_BASE_URL"] == f"{PROXY}/anthropic"
    assert access.env["OPENAI_BASE_URL"] == f"{PROXY}/openai/v1"
    assert access.env["GOOGLE_GEMINI_BASE_URL"] == f"{PROXY}/google"
    assert access.env["ANTHROPIC_AUTH_TOKEN"] == access.env["GEMINI_API_KEY"] == PLACEHOLDER
    opencode = json.loads(access.env["OPENCODE_CONFIG_CONTENT"])["provider"]
    assert opencode["google"]["options"] == {"baseURL": f"{PROXY}/google/v1beta", "apiKey": PLACEHOLDER}
    pi = json.loads(access.files[".pi/models.json"])["providers"]
    assert sorted(pi) == sorted(opencode) == sorted(ALL)
    assert pi["anthropic"]["baseUrl"] == f"{PROXY}/anthropic"
    codex = tomllib.loads(access.files[".codex/config.toml"])
    assert codex["model_providers"][codex["model_provider"]]["base_url"] == access.env["OPENAI_BASE_URL"]
    assert access.env[CODEX_IS_OURS] == "1"
    assert json.loads(access.files[".gemini/settings.json"])["security"]["auth"]["selectedType"] == "gemini-api-key"


def test_one_provider_leads_its_agents_only() -> None:
    access = model_access(["anthropic"])
    assert sorted(access.env) == ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENCODE_CONFIG_CONTENT"]
    assert list(access.files) == [".pi/models.json"]
    assert model_access([]) == model_access(["github"]) == ModelAccess()


def test_a_key_that_the_session_has_is_left_alone() -> None:
    assert model_access(["anthropic"], {"ANTHROPIC_API_KEY": "k"}) == ModelAccess()
    assert "OPENAI_BASE_URL" not in model_access(["openai", "google"], ["OPENAI_BASE_URL"]).env


@given(st.sets(st.sampled_from(ALL)), st.sets(st.sampled_from(["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "X"])))
def test_nothing_that_is_given_is_said_again(providers: set[str], names: set[str]) -> None:
    access = model_access(providers, names)
    assert not names & access.env.keys()
    assert all(PROXY in text or "gemini-api-key" in text for text in access.files.values())
