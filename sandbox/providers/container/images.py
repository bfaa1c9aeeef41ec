"""The image of a session's containers: its first one, or the present meaning of its name; fetched if it is missing."""

import platform

from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.images import asked_of_engine, read_reference
from sandbox.ports.progress import OnProgress
from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.container.engine import Engine
from sandbox.providers.container.engine_answers import BadAnswer
from sandbox.providers.container.image import OWN, Image, Unusable, check_image, image_of, no_image
from sandbox.providers.container.pulls import ImagePulls


class EngineImages:
    """`default` is the name of the image of sessions that name none. Without `pulls` nothing is fetched."""

    def __init__(self, engine: Engine, default: str, pulls: ImagePulls | None) -> None:
        self._engine = engine
        self.default = default
        self._pulls = pulls

    async def missing(self) -> str | None:
        """The text for a missing default image. Raises SandboxUnavailable, EngineRefused."""
        if await self._engine.image(asked_of_engine(self.default)) is not None:
            return None
        if self._pulls is None or not may_be_fetched(self.default):
            return no_image(self.default)
        told = "the first session waits until it is fetched"
        return f"there is no image {self.default} on the container engine yet: {told}"

    async def of(self, spec: SandboxSpec, progress: OnProgress) -> tuple[Image, bool]:
        """The image, and whether it had to be fetched. Raises SandboxFailed, SandboxUnavailable."""
        name = spec.image or self.default
        wanted = spec.image_digest or asked_of_engine(name)
        for known in (spec.image_id, wanted):
            if known and (image := await self._known(known, name)) is not None:
                return image, False
        if self._pulls is None or not may_be_fetched(wanted):
            raise SandboxFailed(no_image(wanted))
        await self._pulls.pull(wanted, progress)
        if (image := await self._known(wanted, name)) is None:
            raise SandboxFailed(f"the image {wanted} was fetched, and has been removed again: try once more")
        return image, True

    async def _known(self, reference: str, name: str) -> Image | None:
        found = await self._engine.image(reference)
        if found is None:
            return None
        try:
            image = image_of(found, name)
            check_image(image, name, platform.machine())
        except (Unusable, BadAnswer) as exc:
            raise SandboxFailed(str(exc)) from exc
        return image

    async def close(self) -> None:
        if self._pulls is not None:
            await self._pulls.close()


def may_be_fetched(name: str) -> bool:
    """Whether a registry may have it. None has ours; and an operator may have named an image by its id."""
    try:
        return read_reference(name).path != f"library/{OWN}"
    except ValueError:
        return False
