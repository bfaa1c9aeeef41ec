"""What a request body may ask for, member by member."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import request_bodies
from gateway.http.request_bodies import (
    ARGUMENTS,
    COMMAND_BYTES,
    ENV_BYTES,
    ENV_COUNT,
    METADATA_BYTES,
    ChangeBody,
    Post,
    ResumeBody,
    SizeBody,
    TerminalWishBody,
    WishBody,
    check_post,
    read_command,
    read_directory,
    read_env,
    read_size,
)
from gateway.protocol.chat_frames import RESERVED_CIDS
from gateway.protocol.errors import ApiError
from gateway.routing.bodies import members, read_struct
from gateway.session.model.state import Wish
from sandbox.ports.resources import NO_LIMITS, ResourceLimits
from sandbox.protocol.agent_server import read_server
from sandbox.protocol.terminal import Size


def read_wish(body: dict[str, Any]) -> Wish:
    return request_bodies.read_wish(read_struct(body, WishBody))


def read_change(body: dict[str, Any]) -> dict[str, Any]:
    return request_bodies.read_change(read_struct(body, ChangeBody))


def read_user(body: dict[str, Any]) -> str | None:
    return request_bodies.read_user(read_struct(body, WishBody))


def read_post(body: dict[str, Any]) -> Post:
    post = read_struct(body, Post)
    check_post(post)
    return post


def read_terminal(body: dict[str, Any]) -> tuple[Any, ...]:
    wish = read_struct(body, TerminalWishBody)
    size = read_size(wish.cols, wish.rows)
    return read_command("command", wish.command), read_env(wish.env_vars), read_directory(wish.cwd), size


def test_a_terminals_command_may_be_a_line_as_for_a_shell() -> None:
    assert read_terminal({"command": "vim 'a file'"})[0] == ("vim", "a file")
    with pytest.raises(ApiError, match=r"^command must be a command line \(No closing quotation\)"):
        read_terminal({"command": "vim 'a file"})


def test_a_wish_for_nothing_is_the_default() -> None:
    assert read_wish({}) == Wish()


def test_a_wish_is_read() -> None:
    wish = read_wish(
        {
            "envVars": {"A": "1"},
            "agent": "python -c 'a b'",
            "network": "none",
            "repoUrl": "https://h/r",
            "repoBranch": "main",
            "title": "t",
            "metadata": {"a": [1]},
            "sleepAfter": "15m",
            "mode": "plan",
            "provider": "docker",
            "image": "debian:12",
        }
    )
    assert (wish.provider, wish.image, wish.mode) == ("docker", "debian:12", "plan")
    assert (wish.env, wish.agent) == ({"A": "1"}, ("python", "-c", "a b"))
    assert (wish.network, wish.repo_url, wish.repo_branch) == ("none", "https://h/r", "main")
    assert (wish.title, wish.metadata, wish.sleep_after) == ("t", {"a": [1]}, 900.0)


@pytest.mark.parametrize(
    ("asked", "command", "name"),
    [
        (None, None, None),
        ("none", None, "none"),
        ("claude-code", None, "claude-code"),
        ("pi@0.74.2", None, "pi@0.74.2"),
        ("acp:my-agent --flag 'two words'", None, "acp:my-agent --flag 'two words'"),
        ("codex exec --json", ("codex", "exec", "--json"), None),
        (["claude-code"], ("claude-code",), None),
    ],
)
def test_an_agent_is_a_name_or_a_command(asked: Any, command: tuple[str, ...] | None, name: str | None) -> None:
    wish = read_wish({"agent": asked})
    assert (wish.agent, wish.agent_name) == (command, name)


def test_an_agent_may_be_a_server() -> None:
    wish = read_wish({"agent": {"command": "serve --port 8080", "connect": "ws://localhost:8080/a", "health": "/ok"}})
    assert (wish.agent, wish.agent_name) == (("serve", "--port", "8080"), None)
    assert wish.agent_server == read_server("ws://localhost:8080/a", "/ok")
    bare = read_wish({"agent": {"command": ["serve"], "connect": "ws://localhost:8080", "health": None}})
    assert bare.agent_server == read_server("ws://localhost:8080")
    with pytest.raises(ApiError, match=r"unknown members: 'agent\.port'; known are agent\.command"):
        read_wish({"agent": {"command": "serve", "connect": "ws://localhost:8080", "port": 1}})


def test_a_change_names_what_it_was_given_and_nothing_else() -> None:
    assert read_change({}) == {}
    assert read_change({"title": "t"}) == {"title": "t"}
    assert read_change({"metadata": {"a": 1}, "sleepAfter": "2h"}) == {"metadata": {"a": 1}, "sleep_after": 7200.0}
    nothing = {"title": None, "metadata": None, "sleepAfter": None, "mode": None}
    assert read_change(nothing) == {"title": None, "metadata": {}, "sleep_after": None, "mode": None}
    assert read_change({"mode": "edits"}) == {"mode": "edits"}


@given(st.floats(1e-3, 1e11) | st.integers(1, 10**11))
def test_an_idle_time_is_the_same_as_a_number_and_as_text(seconds: float) -> None:
    read = read_change({"sleepAfter": seconds})["sleep_after"]
    assert read == pytest.approx(seconds, rel=1e-2)
    assert read == read_change({"sleepAfter": f"{seconds:f} s"})["sleep_after"]


@pytest.mark.parametrize(
    "value", [0, -1, 0.0, 1e-9, 1e300, 10**400, True, False, [], {}, "", "0", "-1", "never", "1w", "9" * 20, "nan"]
)
def test_what_is_no_idle_time_is_refused(value: Any) -> None:
    for read in (read_wish, read_change):
        with pytest.raises(ApiError, match=r"^sleepAfter must be seconds above 0, or a duration such as"):
            read({"sleepAfter": value})


@pytest.mark.parametrize("value", [7, "", "Debian", "a b", "debian:", "x" * 256, "sha256:" + "0a" * 32, ["debian"]])
def test_what_is_no_name_of_an_image_is_refused(value: Any) -> None:
    with pytest.raises(ApiError, match=r"^image must be the name of an image, such as debian:bookworm"):
        read_wish({"image": value})


@pytest.mark.parametrize("value", [7, "", "x" * 65, "a\nb"])
def test_what_is_no_name_of_a_provider_is_refused(value: Any) -> None:
    with pytest.raises(ApiError, match=r"^provider must be a string of 1 to 64 printable characters"):
        read_wish({"provider": value})


def test_limits_are_written_as_the_settings_are() -> None:
    assert read_wish({"limits": {}}).limits == read_wish({"limits": None}).limits == NO_LIMITS
    read = read_wish({"limits": {"memory": "512MiB", "cpus": 1.5, "pids": None}}).limits
    assert read == ResourceLimits(memory=512 << 20, cpus=1.5)
    assert read_wish({"limits": {"memory": 512 << 20, "cpus": 2, "pids": 100}}).limits == ResourceLimits(
        512 << 20, 2.0, 100
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory", 1),
        ("memory", 1e9),
        ("memory", "lots"),
        ("memory", 10**400),
        ("cpus", "1"),
        ("cpus", 0),
        ("cpus", -1),
        ("cpus", 1e300),
        ("cpus", True),
        ("pids", 100.5),
        ("pids", 3),
        ("pids", []),
    ],
)
def test_what_is_no_limit_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ApiError, match=rf"^limits\.{name} must be "):
        read_wish({"limits": {name: value}})


def test_a_limit_nobody_knows_is_refused_with_those_there_are() -> None:
    with pytest.raises(ApiError, match=r"'limits\.disk'; known are limits\.memory, limits\.cpus, limits\.pids"):
        read_wish({"limits": {"disk": 1}})


BAD_WISHES: list[tuple[str, dict[str, Any]]] = [
    ("network", {"network": "all"}),
    ("repoBranch", {"repoBranch": "main"}),
    ("repoUrl", {"repoUrl": ""}),
    ("title", {"title": "x" * 257}),
    ("title", {"title": "a\nb"}),
    ("title", {"title": 1}),
    ("metadata", {"metadata": []}),
    ("metadata", {"metadata": {"a": 1 << 64}}),
    ("metadata", {"metadata": {"a": "x" * METADATA_BYTES}}),
    ("envVars", {"envVars": []}),
    ("envVars", {"envVars": {f"A{n}": "" for n in range(ENV_COUNT + 1)}}),
    ("envVars", {"envVars": {"1A": ""}}),
    ("envVars.A", {"envVars": {"A": 1}}),
    ("envVars.A", {"envVars": {"A": "\0"}}),
    ("envVars", {"envVars": {"A": "x" * ENV_BYTES}}),
    ("config", {"config": 7}),
    ("config.settings", {"config": {"settings": 7}}),
    ("config.settings", {"config": {"settings": {"provider": {"anthropic": {"options": {"apiKey": "k"}}}}}}),
    ("budget", {"budget": 7}),
    ("budget.usd", {"budget": {"usd": -1}}),
    ("budget.usd", {"budget": {"usd": True}}),
    ("budget.usd", {"budget": {"usd": 10**7}}),
    ("budget.tokens", {"budget": {"tokens": 1.5}}),
    ("events", {"events": "some"}),
    ("events", {"events": True}),
    ("agent", {"agent": 7}),
    ("agent.command", {"agent": {}}),
    ("agent.command", {"agent": {"connect": "ws://127.0.0.1:80"}}),
    ("agent.command", {"agent": {"command": [1], "connect": "ws://127.0.0.1:80"}}),
    ("agent.command", {"agent": {"command": "", "connect": "ws://127.0.0.1:80"}}),
    ("agent.connect", {"agent": {"command": "serve"}}),
    ("agent.connect", {"agent": {"command": "serve", "connect": "ws://10.0.0.1:80"}}),
    ("agent.health", {"agent": {"command": "serve", "connect": "ws://127.0.0.1:80", "health": "x"}}),
    ("agent.health", {"agent": {"command": "serve", "connect": "ws://127.0.0.1:80", "health": False}}),
    ("agent", {"agent": ""}),
    ("agent", {"agent": "'open"}),
    ("agent", {"agent": "claude"}),
    ("agent", {"agent": "pi@latest"}),
    ("agent", {"agent": "demo@1"}),
    ("agent", {"agent": "acp:"}),
    ("agent", {"agent": f"acp:{'x ' * (ARGUMENTS + 1)}"}),
    ("agent", {"agent": []}),
    ("agent", {"agent": [""]}),
    ("agent", {"agent": ["a", 1]}),
    ("agent", {"agent": ["a\0"]}),
    ("agent", {"agent": ["a"] * (ARGUMENTS + 1)}),
    ("agent", {"agent": ["x" * 8000] * (COMMAND_BYTES // 8000 + 1)}),
]


@pytest.mark.parametrize(("member", "body"), BAD_WISHES)
def test_a_bad_wish_is_refused_and_its_member_named(member: str, body: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        read_wish(body)
    assert (refused.value.status, refused.value.code) == (400, "bad_member")
    assert str(refused.value).startswith(f"{member} must be ")


def test_a_budget_is_kept_as_far_as_it_limits() -> None:
    assert read_wish({"budget": {"usd": 0.5, "tokens": 1000}}).budget == {"usd": 0.5, "tokens": 1000}
    assert read_wish({"budget": {"usd": 1, "tokens": None}}).budget == {"usd": 1}
    assert read_wish({"budget": {"usd": None}}).budget is None
    assert read_wish({"budget": {}}).budget is None
    with pytest.raises(ApiError, match=r"budget\.eur"):
        read_wish({"budget": {"eur": 1}})


def test_a_configuration_is_kept() -> None:
    kept = read_wish({"config": {"settings": {"model": "m"}, "agents_md": "be kind"}}).config
    assert kept is not None
    assert (kept["settings"], kept["agents_md"]) == ({"model": "m"}, "be kind")


def test_what_is_not_given_is_none() -> None:
    assert (read_user({}), read_terminal({})) == (None, (None, {}, None, None))
    nothing = {"command": None, "envVars": None, "cwd": None, "cols": None, "rows": None}
    assert read_terminal(nothing) == read_terminal({"cwd": ""}) == read_terminal({})
    assert read_user({"userId": "u"}) == "u"
    asked = {"command": ["vim", ""], "cwd": "src", "cols": 80, "rows": 24}
    assert read_terminal(asked) == (("vim", ""), {}, "src", Size(80, 24))


@pytest.mark.parametrize("cwd", [1, [], "a\0b", "x" * 4097])
def test_what_is_no_directory_is_refused(cwd: Any) -> None:
    with pytest.raises(ApiError, match=r"^cwd must be a path of at most 4096 characters$"):
        read_terminal({"cwd": cwd})


@pytest.mark.parametrize("body", [{"cols": 80}, {"rows": 24}, {"cols": 80, "rows": None}])
def test_half_a_size_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=r"^cols and rows must be given together, whole numbers from 1 to 1000$"):
        read_terminal(body)


@pytest.mark.parametrize("kind", [SizeBody, TerminalWishBody])
@pytest.mark.parametrize("side", [0, 1001, True, 1.5, 80.0, "80", []])
def test_a_side_that_is_none_is_refused_by_name(kind: type[SizeBody], side: Any) -> None:
    for name, body in (("cols", {"cols": side, "rows": 1}), ("rows", {"cols": 1, "rows": side})):
        with pytest.raises(ApiError, match=f"^{name} must be a whole number from 1 to 1000; cols and rows are given"):
            read_struct(body, kind)


def test_a_size_alone_is_whole_or_refused() -> None:
    assert read_struct({"cols": 80, "rows": 24}, SizeBody) == SizeBody(80, 24)
    for body in ({}, {"cols": 80}, {"rows": 24}, {"cols": None, "rows": None}):
        with pytest.raises(ApiError, match=r"^(cols|rows) must be a whole number from 1 to 1000; cols and rows"):
            read_struct(body, SizeBody)


@pytest.mark.parametrize("member", ["empty", "keep"])
def test_a_switch_is_true_or_false(member: str) -> None:
    values: list[Any] = [None, 0, 1, "true", []]
    for value in values:
        with pytest.raises(ApiError, match=f"^{member} must be true or false$"):
            read_struct({member: value}, ResumeBody)


def test_a_post_is_read() -> None:
    assert read_post({"role": "user", "content": None}) == Post("user", None, "message", None, None, False)
    whole = {"role": "user", "type": "raw", "content": "ls", "metadata": {}, "cid": "c", "deliver": True}
    assert read_post(whole) == Post("user", "ls", "raw", {}, "c", True)
    parts = [{"type": "text", "text": "hi"}]
    assert read_post({"role": "user", "content": parts, "deliver": True}).content == parts
    assert read_post({"role": "user", "type": "question", "content": {}}).type == "question"


@pytest.mark.parametrize(
    ("member", "body"),
    [
        ("role", {}),
        ("role", {"role": "root"}),
        ("type", {"type": 1}),
        ("type", {"type": "Big"}),
        ("type", {"type": "small\n", "content": 1}),
        ("metadata", {"content": "", "metadata": []}),
        ("metadata", {"content": "", "metadata": {"a": "x" * METADATA_BYTES}}),
        ("type", {"type": "duplicate", "content": 1}),
        ("content", {}),
        ("deliver", {"content": "", "deliver": 1}),
        ("deliver", {"type": "question", "content": "", "deliver": True}),
        ("content", {"type": "raw", "content": "a\nb", "deliver": True}),
        ("content", {"type": "raw", "content": "", "deliver": True}),
        ("content", {"type": "raw", "content": 1, "deliver": True}),
        ("content", {"content": {"a": 1}, "deliver": True}),
        ("cid", {"content": "", "cid": ""}),
    ],
)
def test_a_bad_post_is_refused_and_its_member_named(member: str, body: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=f"^{member} must be "):
        read_post(body if member == "role" else {"role": "user", **body})


def test_a_cid_of_our_own_is_refused() -> None:
    for reserved in RESERVED_CIDS:
        with pytest.raises(ApiError, match="cid must be of your own"):
            read_post({"role": "user", "content": "", "cid": f"{reserved}x"})


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


KINDS = (WishBody, ChangeBody, ResumeBody, TerminalWishBody, SizeBody, Post)
MEMBERS = sorted({name for kind in KINDS for name in members(kind)})


@given(st.dictionaries(st.sampled_from(MEMBERS), ANY))
def test_any_body_is_read_or_refused(body: dict[str, Any]) -> None:
    for kind in KINDS:
        with contextlib.suppress(ApiError):
            read_struct(body, kind)
    for read in (read_wish, read_change, read_post, read_user, read_terminal):
        known = members({read_change: ChangeBody, read_post: Post, read_terminal: TerminalWishBody}.get(read, WishBody))
        with contextlib.suppress(ApiError):
            read({name: value for name, value in body.items() if name in known})
