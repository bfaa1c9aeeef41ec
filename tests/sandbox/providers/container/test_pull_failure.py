"""Why an image could not be had, in words."""

import pytest

from sandbox.providers.container.pull_failure import RESULTS, pull_failure, stalled

DOCKER, PODMAN = (
    "manifest for r.example/a/b:1 not found: manifest unknown",
    "initializing source docker://r.example/a/b:1: ",
)


@pytest.mark.parametrize(
    ("said", "status", "result", "words"),
    [
        (DOCKER, 404, "not_found", "there is no image r.example/a/b:1 in its registry: check its name, tag and digest"),
        ("whatever", 404, "not_found", "there is no image"),
        (PODMAN + "reading manifest 1 in r.example/a/b: manifest unknown", 0, "not_found", "there is no image"),
        (
            "pull access denied for a/b, repository does not exist or may require 'docker login'",
            404,
            "unauthorized",
            "wants a login, or has no such image: HOLDFAST_DOCKER_AUTH_FILE",
        ),
        ('Head "http://r.example/v2/a/b/manifests/1": no basic auth credentials', 500, "unauthorized", "wants a login"),
        (
            PODMAN + "reading manifest 1 in r.example/a/b: unauthorized: authentication required",
            0,
            "unauthorized",
            "login",
        ),
        ("failed to register layer: write /x: no space left on device", 0, "no_space", "has no room: free some"),
        (
            "no matching manifest for linux/amd64 in the manifest list entries",
            404,
            "architecture",
            "there is no r.example/a/b:1 for amd64",
        ),
        (
            PODMAN + "no image found in manifest list for architecture amd64",
            0,
            "architecture",
            "only for other machines",
        ),
        (
            'Get "http://r.example/v2/": dial tcp 192.0.2.1:443: connect: connection refused',
            500,
            "unreachable",
            "cannot reach its registry",
        ),
        ("Get https://r.example/v2/: dial tcp: lookup r.example: no such host", 500, "unreachable", "cannot reach"),
        (
            PODMAN + 'pinging container registry r.example: Get "https://r.example/v2/": EOF',
            0,
            "unreachable",
            "cannot reach",
        ),
        (
            "Get https://r.example/v2/: x509: certificate signed by unknown authority",
            500,
            "untrusted",
            "does not trust",
        ),
        ("http: server gave HTTP response to HTTPS client", 500, "untrusted", "does not trust"),
        ("toomanyrequests: You have reached your pull rate limit", 429, "busy", "try again later, or give a login"),
        ("something else", 500, "failed", "could not be fetched: something else"),
    ],
)
def test_each_kind_is_told_with_what_to_do(said: str, status: int, result: str, words: str) -> None:
    found = pull_failure("r.example/a/b:1", said, status=status, cpu="amd64")
    assert found.result == result
    assert result in RESULTS
    assert words in found.words
    assert "r.example/a/b:1" in found.words


def test_an_image_may_be_called_what_a_failure_is() -> None:
    for image in ("unauthorized/certificate:1", "r.example/no-such-host/x509", "certificate"):
        said = f"manifest for {image} not found: manifest unknown"
        assert pull_failure(image, said, status=404).result == "not_found"
    assert pull_failure("no Name", "no name: unauthorized").result == "unauthorized"


def test_who_gave_a_login_hears_that_it_was_refused() -> None:
    told = pull_failure("x", "unauthorized: authentication required", with_login=True).words
    assert told.startswith("the registry of x refused the login of HOLDFAST_DOCKER_AUTH_FILE")


def test_one_that_stands_still_names_its_setting() -> None:
    assert stalled("x", 300).result == "timeout"
    assert "no progress for 300 s (HOLDFAST_DOCKER_PULL_TIMEOUT)" in stalled("x", 300).words
