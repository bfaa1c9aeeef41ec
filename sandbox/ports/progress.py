"""The progress of a starting sandbox."""

from collections.abc import Callable

import msgspec


class ImagePull(msgspec.Struct, frozen=True):
    """How much of an image has been fetched. Unknown parts count as nothing, so totals may grow."""

    image: str
    layers: int = 0
    of_layers: int = 0
    bytes: int = 0
    of_bytes: int = 0


class ImagePulled(msgspec.Struct, frozen=True):
    """It is there, and the start goes on. Comes once after an ImagePull, unless the start fails."""

    image: str


class ImageChosen(msgspec.Struct, frozen=True):
    """The image that its name means: a session's later sandboxes use the same. `id` is the provider's own name for
    it, `digest` the registry's; "": no registry is known to have it."""

    name: str
    id: str
    digest: str = ""


StartProgress = ImagePull | ImagePulled | ImageChosen
OnProgress = Callable[[StartProgress], None]


def unheard(progress: StartProgress) -> None:
    """Nobody wants to know."""
