"""Facts about an image that a start needs. Only a container's files can be read, so a container is made of the image,
never started, and removed."""

import contextlib
import platform
import secrets
from collections.abc import AsyncIterator

from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.container.containers import Containers
from sandbox.providers.container.engine import TooLong
from sandbox.providers.container.image import Image, loaders, no_libc

_ACCOUNTS_BYTES = 1 << 20


class ImageFiles:
    def __init__(self, containers: Containers) -> None:
        self._containers = containers
        self._with_libc: set[tuple[str, str]] = set()  # image, libc

    async def passwd(self, image: Image) -> bytes | None:
        """Its /etc/passwd; None if it has none. Raises SandboxFailed."""
        async with self._looked_into(image) as container:
            try:
                return await self._containers.engine.read_file(container, "/etc/passwd", _ACCOUNTS_BYTES)
            except TooLong as exc:
                raise SandboxFailed(f"no session can run in this image: its {exc}") from exc

    async def check_libc(self, image: Image, named: str, libc: str) -> None:
        """Raises SandboxFailed unless a program that is linked to `libc` can run in it. A good result is remembered."""
        if not libc or (image.id, libc) in self._with_libc:
            return
        async with self._looked_into(image) as container:
            for path in loaders(libc, platform.machine()):
                if await self._containers.engine.has_file(container, path):
                    self._with_libc.add((image.id, libc))
                    return
        raise SandboxFailed(no_libc(named, libc))

    @contextlib.asynccontextmanager
    async def _looked_into(self, image: Image) -> AsyncIterator[str]:
        looked = {"Image": image.id, "Cmd": ["true"], "Labels": self._containers.labels("")}
        name = f"{self._containers.name('')}-{secrets.token_hex(4)}"
        container, _ = await self._containers.engine.create(name, looked)
        try:
            yield container
        finally:
            await self._containers.engine.remove(container)
