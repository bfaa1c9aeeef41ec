"""Why an image could not be fetched, in words for the user. Pure.

An engine passes on texts of a registry, the network or its disk. So this goes by words, those of Docker and of
Podman, and adds the engine's own.
"""

from dataclasses import dataclass

from sandbox.ports.images import read_reference

AUTH_FILE = "HOLDFAST_DOCKER_AUTH_FILE"
PATIENCE = "HOLDFAST_DOCKER_PULL_TIMEOUT"
OK, FAILED, TIMEOUT, CANCELLED = "ok", "failed", "timeout", "cancelled"


@dataclass(frozen=True, slots=True)
class PullFailure:
    result: str  # one of RESULTS, for who counts
    words: str


_ARCHITECTURE = ("no matching manifest", "no image found in manifest list", "no image found in image index")
_NO_SPACE = ("no space left", "disk quota exceeded", "not enough space")
_LOGIN = (
    *("unauthorized", "authentication required", "no basic auth credentials", "access denied", "access forbidden"),
    *("incorrect username or password", "invalid username/password", "403 forbidden"),
    "access to the resource is denied",
)
_ABSENT = ("manifest unknown", "not found", "name unknown", "no such image", "repository does not exist")
_BUSY = ("toomanyrequests", "too many requests", "rate limit")
_UNTRUSTED = ("x509:", "certificate", "server gave http response to https client", "tls: ")
_UNREACHABLE = (
    *("connection refused", "no such host", "i/o timeout", "network is unreachable", "no route to host", "timed out"),
    *("connection reset", "timeout exceeded", "handshake timeout", "deadline exceeded", "server misbehaving", ": eof"),
    *("unexpected eof", "name resolution", "pinging container registry", "request canceled", "bad gateway"),
    "service unavailable",
)
RESULTS = (
    *(OK, FAILED, TIMEOUT, CANCELLED),
    *("architecture", "no_space", "unauthorized", "not_found", "busy", "untrusted", "unreachable"),
)


def pull_failure(image: str, said: str, *, status: int = 0, cpu: str = "", with_login: bool = False) -> PullFailure:
    """`said` is the engine's complaint and `status` HTTP's, 0 if it came inside of an answer. `cpu` is this host's."""
    text = said.lower()
    for name in _spellings(image):  # an image's name may contain the words of a failure
        text = text.replace(name, "")

    def has(words: tuple[str, ...]) -> bool:
        return any(word in text for word in words)

    if has(_ARCHITECTURE):
        return PullFailure("architecture", f"there is no {image} for {cpu or 'this host'}, only for other machines")
    if has(_NO_SPACE):
        told = "the container engine has no room: free some where it keeps its images"
        return PullFailure("no_space", f"the image {image} could not be fetched: {told} ({said})")
    if has(_BUSY):
        told = "its registry wants fewer requests: try again later, or give a login"
        return PullFailure("busy", f"the image {image} could not be fetched: {told} ({AUTH_FILE}; {said})")
    if has(_LOGIN):
        wants = f"wants a login, or has no such image: {AUTH_FILE}"
        told = f"refused the login of {AUTH_FILE}" if with_login else wants
        return PullFailure("unauthorized", f"the registry of {image} {told} ({said})")
    if has(_UNTRUSTED):
        told = "the container engine does not trust its registry: give the engine the registry's certificate"
        return PullFailure("untrusted", f"the image {image} could not be fetched: {told} ({said})")
    if has(_UNREACHABLE):
        told = "the container engine cannot reach its registry"
        return PullFailure("unreachable", f"the image {image} could not be fetched: {told} ({said})")
    if status == 404 or has(_ABSENT):
        return PullFailure("not_found", f"there is no image {image} in its registry: check its name, tag and digest")
    return PullFailure(FAILED, f"the image {image} could not be fetched: {said}")


def _spellings(image: str) -> list[str]:
    try:
        found = read_reference(image)
    except ValueError:
        return [image]
    return [image, found.repository, found.path, found.path.removeprefix("library/")]


def stalled(image: str, seconds: float) -> PullFailure:
    told = f"no progress for {seconds:g} s ({PATIENCE}): try again, or have it pulled on the container engine's host"
    return PullFailure(TIMEOUT, f"the image {image} could not be fetched: {told}")
