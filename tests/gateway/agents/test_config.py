"""Configurations of agents: read, kept, laid over each other, and written for each agent."""

import json
import tomllib
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.config import (
    CONFIG_BYTES,
    FILE_BYTES,
    MOST_FILES,
    NOTHING,
    AgentConfig,
    AgentConfigFile,
    BadConfig,
    arguments,
    from_kept,
    home_files,
    keys_in,
    read_config,
    settings_for,
    to_agentpod,
    to_opencode,
    toml,
    without_keys,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
SETTINGS = st.dictionaries(TEXT, JSON, max_size=4)
KEYS = st.builds(lambda key: {"type": "api", "key": key}, st.text("abc123", min_size=1))
TOKENS = st.fixed_dictionaries({"type": st.just("oauth"), "access": TEXT, "refresh": TEXT, "expires": st.integers(0)})
NAMES = st.sampled_from(["a", "my-agent", "x.y", "A_1"])
FILES = st.builds(
    AgentConfigFile, st.sampled_from(["agent", "command", "skill", "tool"]), NAMES, st.sampled_from(["md", "ts"]), TEXT
)
CONFIGS = st.builds(
    AgentConfig, SETTINGS, TEXT, st.lists(FILES, max_size=4, unique_by=lambda file: file.key).map(tuple)
)
AGENTS = ["claude-code", "codex", "pi", "opencode", "gemini", "demo", ""]


# -- between a map of credentials and opencode ------------------------------------------------------------------------


@given(st.dictionaries(TEXT, KEYS | TOKENS), SETTINGS)
def test_there_and_back_is_the_same_and_oauth_is_untouched(
    credentials: dict[str, Any], settings: dict[str, Any]
) -> None:
    settings.pop("provider", None)
    config = to_opencode(credentials, settings)
    assert to_agentpod(config, credentials) == credentials
    only_keys = {name: each for name, each in credentials.items() if each["type"] == "api"}
    assert to_agentpod(config, {}) == only_keys
    assert not any("refresh" in json.dumps(each) for each in config.get("provider", {}).values())
    assert without_keys(config) == settings
    assert config.items() >= settings.items()


def test_as_the_other_system_writes_it() -> None:
    credentials = {
        "anthropic": {"type": "api", "key": "k"},
        "openai": {"type": "oauth", "access": "a"},
        "x": {"type": "api"},
    }
    config = to_opencode(credentials, {"model": "m"})
    assert config == {"provider": {"anthropic": {"options": {"apiKey": "k"}}}, "model": "m"}
    assert to_opencode({}, {}) == {}
    assert to_agentpod({"provider": {"anthropic": {"options": {"apiKey": "new"}}}}, credentials) == {
        "openai": {"type": "oauth", "access": "a"}, "x": {"type": "api"}, "anthropic": {"type": "api", "key": "new"},
    }  # fmt: skip


@given(JSON)
def test_no_shape_of_a_provider_breaks_it(value: Any) -> None:
    for config in ({"provider": value}, {"provider": {"x": value}}, {"provider": {"x": {"options": value}}}):
        assert keys_in(without_keys(config)) == {}
        if not keys_in(config):
            assert without_keys(config) == config


def test_what_else_is_said_of_a_provider_stays() -> None:
    one, other = {"options": {"apiKey": "k", "baseURL": "u"}}, {"options": {"apiKey": "k"}, "npm": "n"}
    config = {"provider": {"a": one, "b": other, "c": {"npm": "n"}}, "model": "m"}
    assert without_keys(config) == {
        "provider": {"a": {"options": {"baseURL": "u"}}, "b": {"npm": "n"}, "c": {"npm": "n"}},
        "model": "m",
    }


# -- reading and keeping ----------------------------------------------------------------------------------------------


@given(CONFIGS)
def test_what_is_kept_comes_back_with_the_same_hash(config: AgentConfig) -> None:
    again = from_kept(config.canonical())
    assert again.canonical() == config.canonical()
    assert read_config(json.loads(config.canonical())).hash == config.hash
    turned = AgentConfig(dict(reversed(config.settings.items())), config.agents_md, config.files[::-1])
    assert turned.hash == config.hash


@given(CONFIGS, CONFIGS)
def test_one_lies_over_the_other(base: AgentConfig, top: AgentConfig) -> None:
    both = top.over(base)
    assert both.settings == base.settings | top.settings
    assert both.agents_md == (top.agents_md or base.agents_md)
    assert {each.key: each for each in both.files} == {each.key: each for each in (*base.files, *top.files)}
    assert (NOTHING.over(base).hash, base.over(NOTHING).hash) == (base.hash, base.hash)


def file(**members: Any) -> dict[str, Any]:
    return {"files": [{"type": "agent", "name": "a", "extension": "md", "content": "x", **members}]}


@pytest.mark.parametrize(
    ("value", "member"),
    [
        ({"other": 1}, "other"),
        ({"settings": [1]}, "settings"),
        ({"settings": {"a": 2**70}}, "settings"),
        ({"settings": {"a": "x" * 70_000}}, "settings"),
        ({"agents_md": 5}, "agents_md"),
        ({"agents_md": "a\0b"}, "agents_md"),
        ({"agents_md": "\ud800"}, "agents_md"),
        ({"agents_md": "x" * 140_000}, "agents_md"),
        ({"files": {}}, "files"),
        ({"files": ["x"]}, "files"),
        ({"files": [{"type": "agent"}]}, "files"),
        ({"files": file()["files"] * 2}, "files"),
        ({"files": file()["files"] * (MOST_FILES + 1)}, "files"),
        (file(mode="0777"), "files"),
        (file(type="../../etc"), "files.type"),
        (file(type=5), "files.type"),
        (file(name=".."), "files.name"),
        (file(name="../x"), "files.name"),
        (file(name="/etc/passwd"), "files.name"),
        (file(name="a/b"), "files.name"),
        (file(name=".hidden"), "files.name"),
        (file(name="a\0"), "files.name"),
        (file(name="a\n"), "files.name"),
        (file(name="é"), "files.name"),
        (file(name="x" * 65), "files.name"),
        (file(extension=""), "files.extension"),
        (file(extension="md/../../x"), "files.extension"),
        (file(content="x" * (FILE_BYTES + 1)), "files.content"),
        (file(content=None), "files.content"),
        ({"files": [file(name=f"a{n}", content="x" * FILE_BYTES)["files"][0] for n in range(5)]}, "config"),
    ],
)
def test_what_is_none_is_refused_by_name(value: dict[str, Any], member: str) -> None:
    with pytest.raises(BadConfig) as refused:
        read_config(value)
    assert refused.value.member == member


def test_what_is_absent_or_null_is_empty_and_a_session_has_less_room() -> None:
    assert read_config({}) == read_config({"settings": None, "agents_md": None, "files": None}) == NOTHING
    with pytest.raises(BadConfig, match="16 KiB in all"):
        read_config({"agents_md": "x" * 17_000}, most=16 * 1024)
    assert CONFIG_BYTES > FILE_BYTES


# -- what an agent is given -------------------------------------------------------------------------------------------


@given(CONFIGS, st.sampled_from(AGENTS))
def test_every_path_lies_below_home(config: AgentConfig, agent: str) -> None:
    files = home_files(agent, config)
    assert len({path for path, _ in files}) == len(files)
    for path, _ in files:
        parts = PurePosixPath(path).parts
        assert not path.startswith("/")
        assert ".." not in parts
        assert len(parts) > 1
    assert (agent in AGENTS[:5]) or (files == [] and arguments(agent, config) == ())


def test_each_agent_gets_it_where_it_looks() -> None:
    files = tuple(AgentConfigFile(kind, "x", "md", kind) for kind in ("agent", "command", "skill", "tool"))
    config = AgentConfig({"model": "m", "codex": {"model": "c", "tools": {"web": True}}}, "be kind", files)
    given = {agent: dict(home_files(agent, config)) for agent in AGENTS[:5]}
    assert {agent: sorted(each) for agent, each in given.items()} == {
        "claude-code": [".claude/CLAUDE.md", ".claude/agents/x.md", ".claude/commands/x.md", ".claude/settings.json",
                        ".claude/skills/x/SKILL.md"],
        "codex": [".codex/AGENTS.md", ".codex/prompts/x.md"],
        "pi": [".pi/AGENTS.md", ".pi/prompts/x.md", ".pi/settings.json", ".pi/skills/x/SKILL.md"],
        "opencode": [".config/opencode/AGENTS.md", ".config/opencode/agent/x.md", ".config/opencode/command/x.md",
                     ".config/opencode/opencode.json", ".config/opencode/skill/x/SKILL.md",
                     ".config/opencode/tool/x.md"],
        "gemini": [".gemini/GEMINI.md", ".gemini/commands/x.md", ".gemini/settings.json"],
    }  # fmt: skip
    assert json.loads(given["opencode"][".config/opencode/opencode.json"]) == {"model": "m"}
    assert given["pi"][".pi/AGENTS.md"] == "be kind"
    assert arguments("codex", config) == ("-c", 'model="c"', "-c", "tools.web=true")
    assert settings_for("codex", {"model": "m"}) == {"model": "m"}


def test_codex_is_told_nothing_of_what_is_null_or_no_key_of_toml() -> None:
    settings = {"model": None, "a b": 1, "tools": {"web": True, "x y": 2}}
    assert arguments("codex", AgentConfig({"codex": settings})) == ("-c", "tools.web=true")


@given(SETTINGS)
def test_what_codex_is_told_is_toml_that_says_the_same(settings: dict[str, Any]) -> None:
    words = arguments("codex", AgentConfig({"codex": settings}))
    assert words[::2] == ("-c",) * (len(words) // 2)
    for word in words[1::2]:
        tomllib.loads(word)


@given(JSON)
def test_a_value_is_toml(value: Any) -> None:
    def without_nulls(each: Any) -> Any:
        if isinstance(each, dict):
            return {name: without_nulls(inner) for name, inner in each.items() if inner is not None}
        return [without_nulls(inner) for inner in each if inner is not None] if isinstance(each, list) else each

    if value is not None:
        assert tomllib.loads(f"x = {toml(value)}") == {"x": without_nulls(value)}
