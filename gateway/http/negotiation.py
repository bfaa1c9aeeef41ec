"""Chooses a file's encoding by Accept-Encoding, and checks If-None-Match. Pure."""

from collections.abc import Collection

IDENTITY = "identity"
PREFERRED = ("br", "gzip")  # where a browser ranks several alike


def choose_encoding(accepted: str, available: Collection[str]) -> str:
    """The encoding that `accepted` (the header; empty for none) ranks first, among `available` and the plain one.

    The plain form is never refused: a client that forbids it and takes none of the others gets it all the same.
    """
    liked = _qualities(accepted)
    others = liked.get("*", 0.0)
    found = [(liked.get(name, others), -rank, name) for rank, name in enumerate(PREFERRED) if name in available]
    quality, _, best = max(found, default=(0.0, 0, IDENTITY))
    plain = liked.get(IDENTITY, others) if IDENTITY in liked or "*" in liked else 0.0
    return best if quality > 0 and quality >= plain else IDENTITY


def is_known(tags: str, tag: str) -> bool:
    """True if the header `tags` (If-None-Match) names this ETag: then the client has this very content."""
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in tags.split(","))


def _qualities(accepted: str) -> dict[str, float]:
    """The quality of each encoding, 0 to 1. An entry that cannot be parsed has quality 0."""
    found: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, *parameters = (each.strip() for each in part.split(";"))
        if name:
            given = [each[2:].strip() for each in parameters if each.startswith("q=")]
            found["gzip" if name == "x-gzip" else name] = _quality(given[0]) if given else 1.0
    return found


def _quality(text: str) -> float:
    whole, _, rest = text.partition(".")
    good = whole in ("0", "1") and len(rest) <= 3 and (not rest or (rest.isascii() and rest.isdecimal()))
    return min(1.0, float(text)) if good else 0.0
