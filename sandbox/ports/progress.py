"""What is heard of a sandbox while it starts."""

from collections.abc import Callable

import msgspec


class ImageChosen(msgspec.Struct, frozen=True):
    """What its image's name means: a session's later sandboxes are made of the same. `id` is the provider's own word
    for it, `digest` the registry's; "": no registry is known to have it."""

    name: str
    id: str
    digest: str = ""


OnProgress = Callable[[ImageChosen], None]


def unheard(progress: ImageChosen) -> None:
    """Nobody wants to know."""
