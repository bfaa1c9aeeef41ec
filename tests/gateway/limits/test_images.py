"""Which images users may name for their sessions."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.images import ImageRule, read_patterns

DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("patterns", "allowed", "refused"),
    [
        ("", ["house:1", "docker.io/library/house:1"], ["house", "house:2", f"house@{DIGEST}", "debian"]),
        ("debian", ["debian", "debian:12", f"debian@{DIGEST}"], ["debian.example/x", "x/debian", "debians"]),
        ("debian", ["docker.io/library/debian:12", "index.docker.io/debian"], ["localhost/debian"]),
        ("debian:12", ["debian:12"], ["debian", "debian:123", f"debian:12@{DIGEST}", f"debian@{DIGEST}"]),
        ("debian:*-slim", ["debian:12-slim", "debian:x-slim"], ["debian:12", "debian:slim"]),
        (f"debian@{DIGEST}", [f"debian@{DIGEST}", f"debian:12@{DIGEST}"], ["debian:12", f"debian@sha256:{'0b' * 32}"]),
        ("debian@*", [f"debian@{DIGEST}"], ["debian:12"]),
        ("r.example/team/*", ["r.example/team/a:1"], ["r.example/team/a/b", "r.example/teams/a", "r.example:5/team/a"]),
        ("r.example/team/**", ["r.example/team/a", "r.example/team/a/b:1"], ["r.example/team", "example/team/a"]),
        ("*.example/x", ["a.example/x", "a.b.example/x"], ["a.example.org/x", "a.example/y"]),
        ("**/base", ["r.example/a/base", "a/base"], ["base.example/x", "r.example/base/x"]),
        ("**.example/x", ["a.example/x", "a.b.example/x"], ["evil.test/a.example/x", "evil.test/a/b.example/x"]),
        ("**:5000/x", ["r.example:5000/x"], ["r.example/x", "r.example:5001/x"]),
        ("docker.io/**", ["debian", "team/x", "docker.io/a/b/c:1"], ["r.example/x"]),
        ("docker.io/library/**", ["debian"], ["team/x"]),
        ("team/**", ["team/x", "team/x/y"], ["r.example/team/x", "debian"]),
        ("**base", ["base", "r.example/a/base:1"], ["base/x"]),
        ("*", ["debian", "r.example:5000/a/b/c:1"], []),
        ("**", ["debian", "r.example:5000/a/b/c:1"], []),
        ("debian:12, python", ["debian:12", "python:3"], ["node"]),
        ("localhost/*", ["localhost/x"], ["x", "localhost.example/x"]),
    ],
)  # fmt: skip
def test_patterns_allow_what_they_say_and_no_more(patterns: str, allowed: list[str], refused: list[str]) -> None:
    rule = ImageRule("house:1", read_patterns(patterns))
    assert rule.refusal(None) is rule.refusal("house:1") is None, "the operator's own is for everybody"
    assert [name for name in allowed if rule.refusal(name)] == []
    for name in refused:
        told = rule.refusal(name)
        assert told is not None, name
        assert f"image: {name} is none that users may name here" in told
        assert "HOLDFAST_IMAGES" in told
        assert rule.refusal(name, granted=True) is None, "a service may name any"


def test_an_operators_image_that_is_known_by_its_id_alone_allows_no_name() -> None:
    assert ImageRule(DIGEST).refusal("debian") is not None
    assert ImageRule().refusal("debian") is not None


@pytest.mark.parametrize(
    "text",
    [
        *("a b", "a\nb", ";", "a@b@c", "x" * 256, ",".join(["x"] * 101), "ä"),
        *("debian:", "debian@", "debian:12@", "r.example/"),
    ],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wants at most 100 patterns of images such as"):
        read_patterns(text)


@given(st.text("ab*", min_size=1, max_size=12), st.text("ab", min_size=1, max_size=12))
def test_within_one_part_stars_are_those_of_a_shell(pattern: str, word: str) -> None:
    """Where there is no `/`, one star is as good as two."""
    allowed = ImageRule("", (f"r.example/x-{pattern}",)).refusal(f"r.example/x-{word}") is None
    assert allowed == fnmatch.fnmatchcase(word, pattern)


def test_no_pattern_takes_long() -> None:
    rule = ImageRule("", ("r.example/" + "*a" * 100,))
    assert rule.refusal("r.example/" + "a" * 99) is not None
    assert rule.refusal("r.example/" + "a" * 100) is None
