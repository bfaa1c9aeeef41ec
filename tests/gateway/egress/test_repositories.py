"""Which requests are git's, for a session's own repository."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.egress.providers import KeyHeader, ModelProviders
from gateway.egress.repositories import GitRepository, basic, git_config, git_request, host_of, repository_of

OURS = GitRepository("github.com", "o/r")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://github.com/o/r", OURS),
        ("https://user:key@GitHub.com/o/r.git/", OURS),
        ("https://git.test:8443/a/b/c", GitRepository("git.test:8443", "a/b/c")),
        ("https://git.test:443/o/r", GitRepository("git.test", "o/r")),
        *[(url, None) for url in ("http://github.com/o/r", "https://github.com", "https://github.com/o/../r", "x",
                                  "https://[::1/x", "https://git.test:99999/x", "https://github.com/a b", "https:///o/r")],
    ],
)  # fmt: skip
def test_the_repository_of_an_address(url: str, found: GitRepository | None) -> None:
    assert repository_of(url) == found


@pytest.mark.parametrize(
    ("method", "path", "target"),
    [
        ("GET", "/github.com/o/r/info/refs?service=git-upload-pack", "/o/r/info/refs?service=git-upload-pack"),
        (
            "GET",
            "/github.com/O/R.git/info/refs?service=git-receive-pack",
            "/O/R.git/info/refs?service=git-receive-pack",
        ),
        ("POST", "/github.com/o/r/git-upload-pack", "/o/r/git-upload-pack"),
        ("POST", "/GitHub.com/o/r.git/git-receive-pack", "/o/r.git/git-receive-pack"),
    ],
)
def test_clone_fetch_and_push_pass(method: str, path: str, target: str) -> None:
    asked = git_request(OURS, method, path)
    assert asked is not None
    assert asked.target == target


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/github.com/o/other/info/refs?service=git-upload-pack"),
        ("GET", "/evil.test/o/r/info/refs?service=git-upload-pack"),
        ("GET", "/github.com/o/r/info/refs"),
        ("GET", "/github.com/o/r/info/refs?service=git-x"),
        ("GET", "/github.com/o/r/info/refs?git-upload-pack"),
        ("GET", "/github.com/o/r/objects/info/packs"),
        ("POST", "/github.com/o/r/git-upload-pack?x=1"),
        ("POST", "/github.com/o/r/info/lfs/objects/batch"),
        ("POST", "/github.com/o/../o/r/git-upload-pack"),
        ("PUT", "/github.com/o/r/git-upload-pack"),
        ("GET", "/github.com"),
        ("POST", "/github.com/git-upload-pack"),
    ],
)
def test_nothing_else_does(method: str, path: str) -> None:
    assert git_request(OURS, method, path) is None


@given(st.sampled_from(["GET", "POST"]), st.text(st.sampled_from("/.or%2fgit-upload-pack?service=infos"), max_size=60))
def test_what_passes_is_of_the_repository(method: str, rest: str) -> None:
    asked = git_request(OURS, method, f"/github.com/{rest}")
    if asked is not None:
        assert asked.target.startswith(("/o/r/", "/o/r.git/"))


def test_a_host_that_nobody_has_named_has_no_key() -> None:
    providers = ModelProviders()
    assert host_of(OURS, providers) is providers.get("github")
    other = host_of(GitRepository("git.test:8443", "o/r"), providers)
    assert (other.name, other.origin, other.of_operator) == ("git.test:8443", "https://git.test:8443", False)
    assert other.key is KeyHeader.BASIC


def test_git_is_led_to_the_proxy() -> None:
    assert OURS.owner_and_name == ("o", "r")
    assert git_config(OURS, "http://127.0.0.1:3128") == {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "url.http://127.0.0.1:3128/git/github.com/o/r.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/o/r",
    }


def test_a_key_is_shown_to_a_git_host_as_basic() -> None:
    assert basic("x-access-token", "k") == "eC1hY2Nlc3MtdG9rZW46aw=="
    assert basic("", "k") == basic("git", "k")
