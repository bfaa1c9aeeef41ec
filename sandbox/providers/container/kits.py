"""The kits of a data directory: the one that this gateway's containers mount, and those of earlier gateways.

A kit is made in a process of its own, once for each version of what goes into it (sandbox/providers/container/
kit_maker.py); each gateway checks the one it finds, byte by byte, before it trusts it.
"""

import asyncio
import contextlib
from collections.abc import Collection
from pathlib import Path

from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.container.kit_maker import package
from sandbox.system.interpreter import PYTHON

MAKE_SECONDS = 300.0
_WORDS = 2000


class Kits:
    """Does nothing until asked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._kit: Path | None = None
        self._turn = asyncio.Lock()

    async def current(self) -> Path:
        """This gateway's kit, whole. Raises SandboxFailed."""
        async with self._turn:
            if self._kit is None:
                self._kit = self._directory / await self._made()
            return self._kit

    def unused(self, used: Collection[str]) -> list[Path]:
        """The kits that are neither this gateway's nor `used`. Ask for the current one first."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for entry in self._directory.iterdir():
                if not entry.name.startswith(".") and entry != self._kit and entry.name not in used:
                    found.append(entry)
        return found

    async def _made(self) -> str:
        try:
            maker = await asyncio.create_subprocess_exec(
                *(PYTHON, "-P", "-s", "-m", "sandbox.providers.container.kit_maker", str(self._directory)),
                env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": str(package().parent)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as exc:
            raise SandboxFailed(f"the kit for containers could not be made: {exc.strerror or exc}") from exc
        try:
            async with asyncio.timeout(MAKE_SECONDS):
                name, words = await maker.communicate()
        except TimeoutError as exc:
            raise SandboxFailed(f"the kit for containers was not made within {MAKE_SECONDS:g} s") from exc
        finally:
            with contextlib.suppress(ProcessLookupError):
                maker.kill()  # one that has ended is not there any more
            await maker.wait()
        if maker.returncode != 0:
            said = words.decode(errors="replace").strip()[-_WORDS:]
            raise SandboxFailed(f"the kit for containers could not be made: {said or f'exit {maker.returncode}'}")
        return name.decode().strip()
