"""What a container engine says, read and checked."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.ports.fleet import ProviderHealth
from sandbox.ports.resources import NO_LIMITS, ResourceLimits, ResourceUsage
from sandbox.providers.container.engine_answers import (
    MAX_LINE,
    BadAnswer,
    JsonLines,
    complaint,
    document,
    enforced,
    held_to,
    inner,
    machine_of,
    members,
    name_and_tag,
    negotiated,
    one_line,
    state,
    texts,
    trouble,
    usage,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_limits_and_use_are_read_as_an_engine_tells_them() -> None:
    host = {"Memory": 1 << 30, "NanoCpus": 1_500_000_000, "PidsLimit": 100}
    assert held_to({"HostConfig": host}) == ResourceLimits(1 << 30, 1.5, 100)
    assert held_to({"HostConfig": {"Memory": 0, "NanoCpus": 0, "PidsLimit": None}}) == NO_LIMITS
    stats = {
        "memory_stats": {"usage": 5000},
        "cpu_stats": {"cpu_usage": {"total_usage": 1_234_567_890}},
        "pids_stats": {"current": 3},
    }
    assert usage(stats) == ResourceUsage(5000, 1.235, 3)


def test_a_machine_is_as_its_engine_tells_or_unknown() -> None:
    assert machine_of({"NCPU": 2, "MemTotal": 8 << 30}) == ProviderHealth(cpus=2, memory=8 << 30)
    assert machine_of({"NCPU": "many", "MemTotal": None}) == ProviderHealth()


@given(JSON)
def test_what_an_engine_may_say_of_limits_and_use_is_never_believed_blindly(said: Any) -> None:
    if isinstance(said, dict):
        assert held_to({"HostConfig": said}) is not None
        assert usage({"cpu_stats": said, "memory_stats": said, "pids_stats": said}) is not None
    assert held_to({"HostConfig": said}).cpus is None or isinstance(said, dict)
    assert usage({"cpu_stats": {"cpu_usage": said}}).cpu_seconds is None or isinstance(said, dict)


@pytest.mark.parametrize(
    ("newest", "oldest", "spoken"),
    [
        ("1.41", "1.12", "/v1.41"),  # Docker Engine 20.10
        ("1.41", None, "/v1.41"),
        ("1.46", "1.24", "/v1.46"),
        ("1.99", "1.44", "/v1.51"),
        ("1.51", "1.51", "/v1.51"),
    ],
)
def test_the_newest_version_that_both_know_is_spoken(newest: str, oldest: str | None, spoken: str) -> None:
    assert negotiated({"ApiVersion": newest, "MinAPIVersion": oldest}) == spoken


@pytest.mark.parametrize(("newest", "oldest"), [("1.40", "1.12"), ("1.60", "1.52"), ("2.0", "2.0")])
def test_an_engine_that_is_too_old_or_too_new_is_told_what_is_needed(newest: str, oldest: str) -> None:
    with pytest.raises(BadAnswer, match=rf"{oldest} to {newest}.*1.41 to 1.51.*Docker Engine 20.10"):
        negotiated({"ApiVersion": newest, "MinAPIVersion": oldest})


@pytest.mark.parametrize("answer", [None, [], {}, {"ApiVersion": 1.41}, {"ApiVersion": "latest"}, {"ApiVersion": "1"}])
def test_what_tells_no_version_is_no_engine(answer: Any) -> None:
    with pytest.raises(BadAnswer):
        negotiated(answer)


@pytest.mark.parametrize("content", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_a_bad_answer(content: bytes) -> None:
    with pytest.raises(BadAnswer, match="not JSON"):
        document(content)


def test_shapes_are_checked() -> None:
    assert members({"a": 1}) == {"a": 1}
    assert inner({"a": {"b": {"c": 1}}}, "a", "b") == {"c": 1}
    assert inner({"a": None}, "a") == inner({}, "a", "b") == {}
    assert texts(None) == texts([]) == []
    assert texts(["one"]) == ["one"]
    bads: list[Any] = ["text", 1, {}, [1], ["one", None]]
    for bad in bads:
        with pytest.raises(BadAnswer):
            texts(bad)
    with pytest.raises(BadAnswer):
        inner({"a": [1]}, "a")


def test_how_a_container_is_is_told_or_nothing_is() -> None:
    assert state({"State": {"Running": True}}) == {"Running": True}
    assert state(None) == state({}) == state({"State": None}) == state({"State": "running"}) == {}


def test_a_complaint_is_one_line_that_nothing_can_be_hidden_in() -> None:
    assert complaint(b'{"message": "no such image: x\\u001b[2J\\n"}') == "no such image: x [2J"
    assert complaint(b"page not found\n") == "page not found"
    assert complaint(b"") == complaint(b'{"message": null}') == "no reason given"
    assert len(one_line("x" * 10_000)) == 500


def test_an_error_in_a_stream_is_found() -> None:
    assert trouble({"status": "Downloading"}) is None
    assert trouble({"error": "no room"}) == "no room"
    assert trouble({"errorDetail": {"message": "no room"}}) == "no room"


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("debian", ("debian", "latest")),
        ("debian:12", ("debian", "12")),
        ("localhost:5000/debian", ("localhost:5000/debian", "latest")),
        ("localhost:5000/debian:12", ("localhost:5000/debian", "12")),
        ("debian@sha256:" + "0" * 64, ("debian@sha256:" + "0" * 64, "")),
    ],
)
def test_an_image_is_asked_for_by_name_and_tag(image: str, parts: tuple[str, str]) -> None:
    assert name_and_tag(image) == parts


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=2), max_size=5), st.data())
def test_a_stream_is_cut_at_its_newlines_however_it_comes(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = b"\r\n".join(json.dumps(message).encode() for message in messages)
    lines, found = JsonLines(), []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        found += lines.feed(whole[:size])
        whole = whole[size:]
    assert found + lines.end() == messages
    assert lines.end() == []


def test_a_line_without_end_is_refused() -> None:
    lines = JsonLines()
    assert lines.feed(b" " * MAX_LINE) == []
    with pytest.raises(BadAnswer, match="without end"):
        lines.feed(b" ")
    with pytest.raises(BadAnswer, match="not an object"):
        JsonLines().feed(b"1\n")


def test_a_limit_that_the_kernel_does_not_hold_to_is_not_told() -> None:
    asked = ResourceLimits(memory=100, cpus=0.5, pids=10)
    held = {"memory_stats": {"limit": 100}, "pids_stats": {"limit": 10}}
    assert enforced(asked, held) == enforced(asked, {}) == asked
    ignored = {"memory_stats": {"limit": 1 << 34}, "pids_stats": {"limit": 1 << 20}}
    assert enforced(asked, ignored) == ResourceLimits(cpus=0.5)
    assert enforced(asked, {"memory_stats": None, "pids_stats": {"limit": "max"}}) == asked
    assert enforced(ResourceLimits(), ignored) == ResourceLimits()
