"""The images that users may name for their sessions. Pure.

HOLDFAST_IMAGES has patterns. In each `*` stands for any characters but `/`, `**` for any, and a pattern that is one of
these alone for every image. A pattern that names a registry is compared with the registry and with the rest, each by
itself; one that begins with `**` and names none is for every registry. A pattern without a tag allows every tag and
every digest, one with a tag that tag alone: beside a digest, a tag means nothing, so it allows none. Names are compared
as Docker reads them: `debian` is `docker.io/library/debian`. Without patterns users may name HOLDFAST_DOCKER_IMAGE
alone. A service may name any image. A user's choice is checked again at each start: the setting may have changed since.
"""

import re
from dataclasses import dataclass

from sandbox.ports.images import HUB, ImageReference, read_reference, split_reference

_PATTERN = re.compile(r"[a-z0-9*][A-Za-z0-9._:/@*-]{0,253}[A-Za-z0-9._*-]|[a-z0-9*]", re.ASCII)
_PIECES = re.compile(r"\*\*|\*|[^*]+")
ANY_IMAGE = "**"
_ALL = ("*", ANY_IMAGE)
A_PATTERN = "patterns of images such as debian, debian:*-slim or registry.example.com/team/**, separated by commas"


def read_patterns(text: str) -> tuple[str, ...]:
    """Parse the setting. Raises ValueError."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(found) > 100 or not all(_PATTERN.fullmatch(part) and part.count("@") <= 1 for part in found):
        raise ValueError(f"wants at most 100 {A_PATTERN}")
    return found


@dataclass(frozen=True, slots=True)
class ImageRule:
    """`given` is the image of sessions that name none."""

    given: str = ""
    patterns: tuple[str, ...] = ()

    def refusal(self, image: str | None, *, granted: bool = False) -> str | None:
        """The reason why a session may not have this image; None if it may. `granted`: a service asked for it."""
        if image is None or granted or image == self.given:
            return None
        wanted = read_reference(image)
        if any(_allows(pattern, wanted) for pattern in self.patterns) or _same(wanted, self.given):
            return None
        most = ", ".join(self.patterns) or self.given
        return (
            f"image: {image} is none that users may name here, {most}: the operator can allow more (HOLDFAST_IMAGES), "
            "or let a service create the session"
        )


def _same(wanted: ImageReference, given: str) -> bool:
    try:
        return wanted == read_reference(given)
    except ValueError:
        return False


def _allows(pattern: str, wanted: ImageReference) -> bool:
    if pattern in _ALL:
        return True
    registry, path, tag, digest = split_reference(pattern)
    if registry == HUB and path not in pattern and (bare := path.removeprefix("library/")).startswith("**"):
        path = bare  # Docker puts `library` before a single word; `**` may stand for several
    if registry == HUB and pattern.startswith("**"):  # of any registry
        named = _matches(path, wanted.repository)
    else:
        named = _matches(registry, wanted.registry) and _matches(path, wanted.path)
    if not named:
        return False
    if digest:
        return bool(wanted.digest) and _matches(digest, wanted.digest)
    return not tag or (not wanted.digest and _matches(tag, wanted.tag))


def _matches(pattern: str, text: str) -> bool:
    """Tracks where each piece of the pattern may end, one after the other: so no pattern takes long."""
    ends = {0}
    for piece in _PIECES.findall(pattern):
        if piece == "**":
            ends = set(range(min(ends), len(text) + 1))
        elif piece == "*":
            ends = {end for start in ends for end in range(start, len(text[start:].partition("/")[0]) + start + 1)}
        else:
            ends = {start + len(piece) for start in ends if text.startswith(piece, start)}
        if not ends:
            return False
    return len(text) in ends
