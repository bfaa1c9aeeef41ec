"""What a request body may ask for, member by member."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.request_bodies import (
    ARGUMENTS,
    COMMAND_BYTES,
    CREATE_MEMBERS,
    ENV_BYTES,
    ENV_COUNT,
    METADATA_BYTES,
    POST_MEMBERS,
    PostedRecord,
    read_change,
    read_command,
    read_env,
    read_post,
    read_size,
    read_user,
    read_wish,
)
from gateway.protocol.chat_frames import RESERVED_CIDS
from gateway.protocol.errors import ApiError
from gateway.session.model.state import Wish
from sandbox.protocol.terminal import Size


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
        }
    )
    assert (wish.env, wish.agent) == ({"A": "1"}, ("python", "-c", "a b"))
    assert (wish.network, wish.repo_url, wish.repo_branch) == ("none", "https://h/r", "main")
    assert (wish.title, wish.metadata, wish.sleep_after) == ("t", {"a": [1]}, 900.0)


def test_a_change_names_what_it_was_given_and_nothing_else() -> None:
    assert read_change({}) == {}
    assert read_change({"title": "t"}) == {"title": "t"}
    assert read_change({"metadata": {"a": 1}, "sleepAfter": "2h"}) == {"metadata": {"a": 1}, "sleep_after": 7200.0}
    nothing = {"title": None, "metadata": None, "sleepAfter": None}
    assert read_change(nothing) == {"title": None, "metadata": {}, "sleep_after": None}


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


BAD_WISHES: list[tuple[str, dict[str, Any]]] = [
    ("network", {"network": "all"}),
    ("repoBranch", {"repoBranch": "main"}),
    ("repoUrl", {"repoUrl": ""}),
    ("title", {"title": "x" * 257}),
    ("title", {"title": "a\nb"}),
    ("title", {"title": 1}),
    ("metadata", {"metadata": []}),
    ("metadata", {"metadata": {"a": "x" * METADATA_BYTES}}),
    ("envVars", {"envVars": []}),
    ("envVars", {"envVars": {f"A{n}": "" for n in range(ENV_COUNT + 1)}}),
    ("envVars", {"envVars": {"1A": ""}}),
    ("envVars.A", {"envVars": {"A": 1}}),
    ("envVars.A", {"envVars": {"A": "\0"}}),
    ("envVars", {"envVars": {"A": "x" * ENV_BYTES}}),
    ("agent", {"agent": ""}),
    ("agent", {"agent": "'open"}),
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


def test_what_is_not_given_is_none() -> None:
    assert (read_env({}), read_user({}), read_command({}), read_size({})) == ({}, None, None, None)
    assert read_user({"userId": "u"}) == "u"
    assert read_command({"command": ["vim", ""]}) == ("vim", "")


@pytest.mark.parametrize(
    "body",
    [{"cols": 80}, {"rows": 24}, {"cols": 0, "rows": 1}, {"cols": 1001, "rows": 1}, {"cols": True, "rows": 1}],
)
def test_half_a_size_or_none_at_all_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="cols and rows must be given together"):
        read_size(body)
    assert read_size({"cols": 80, "rows": 24}) == Size(80, 24)


def test_a_post_is_read() -> None:
    assert read_post({"role": "user", "content": None}) == PostedRecord("user", "message", None, None, None, False)
    whole = {"role": "user", "type": "raw", "content": "ls", "metadata": {}, "cid": "c", "deliver": True}
    assert read_post(whole) == PostedRecord("user", "raw", "ls", {}, "c", True)
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


@given(st.dictionaries(st.sampled_from(sorted(CREATE_MEMBERS | POST_MEMBERS)), ANY))
def test_any_body_is_read_or_refused(body: dict[str, Any]) -> None:
    for read in (read_wish, read_change, read_post, read_user, read_command, read_size):
        with contextlib.suppress(ApiError):
            read(body)
