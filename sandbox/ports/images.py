"""Names of container images: `[registry/]path[:tag][@digest]`. Pure.

They are read as Docker reads them. A name without a registry is of Docker Hub, a single word there is below
`library`, and without tag and digest the tag is `latest`. A digest names one image for ever; a tag beside it means
nothing.
"""

import re
from dataclasses import dataclass

HUB = "docker.io"
LATEST = "latest"
LONGEST = 255
A_REFERENCE = "the name of an image, such as debian:bookworm or registry.example.com/team/image@sha256:..."

_HOST = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_REGISTRY = re.compile(rf"{_HOST}(?:\.{_HOST})*(?::[0-9]{{1,5}})?", re.ASCII)
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_AN_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ImageReference:
    registry: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        return f"{self.registry}/{self.path}"


def split_reference(text: str) -> tuple[str, str, str, str]:
    """Registry, path, tag and digest, with the defaults for missing parts. Nothing is checked, so patterns may be
    split, too."""
    rest, _, digest = text.partition("@")
    last = rest.rfind("/") + 1
    name, _, tag = rest[last:].partition(":")
    registry, slash, path = (rest[:last] + name).partition("/")
    if not slash or not ("." in registry or ":" in registry or registry == "localhost"):
        registry, path = HUB, rest[:last] + name
    if registry == "index.docker.io":
        registry = HUB
    if registry == HUB and "/" not in path:
        path = f"library/{path}"
    return registry, path, tag, digest


def read_reference(text: str) -> ImageReference:
    """Raises ValueError unless it is the name of an image. An id is none: it may mean any image of an engine."""
    registry, path, tag, digest = split_reference(text)
    fine = (
        len(text) <= LONGEST
        and _REGISTRY.fullmatch(registry)
        and all(_PATH.fullmatch(part) for part in path.split("/"))
        and (not tag or _TAG.fullmatch(tag))
        and (not digest or _DIGEST.fullmatch(digest))
    )
    unfinished = text.endswith((":", "@")) or ":@" in text
    if not fine or unfinished or path == "library/sha256" or _AN_ID.fullmatch(text):
        raise ValueError(f"wants {A_REFERENCE}")
    return ImageReference(registry, path, tag or ("" if digest else LATEST), digest)


def asked_of_engine(text: str) -> str:
    """An image's name for a request to an engine: with its tag, or the engine might take it for the beginning of an
    id. A text that is no name stays as it is; an operator may give an id."""
    try:
        found = read_reference(text)
    except ValueError:
        return text
    return text if "@" in text or text.endswith(f":{found.tag}") else f"{text}:{found.tag}"
