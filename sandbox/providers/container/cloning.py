"""Clones for containers. A container has no network of its own, so a repository is cloned before it is made: outside,
in a bubblewrap sandbox of the local provider's kind that sees nothing of the session but an empty workspace."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.container.image import ContainerUser
from sandbox.providers.local import bubblewrap
from sandbox.providers.local.cloning import CLONE_SECONDS, Cloning
from sandbox.providers.local.host import LocalHost
from sandbox.providers.local.isolation import Contained, SandboxLimits
from sandbox.providers.local.layout import SandboxHome
from sandbox.system.give_away import give_tree


class OutsideClones:
    """`open` comes first: it finds out whether there can be clones here."""

    def __init__(
        self,
        host: LocalHost,
        base_env: Mapping[str, str],
        *,
        seconds: float = CLONE_SECONDS,
        allow_private: bool = False,
        readable: Sequence[Path] = (),
        bwrap: str | None = None,
    ) -> None:
        self._host = host
        self._cloning = Cloning(host, base_env, seconds=seconds, allow_private=allow_private)
        self._readable = tuple(readable)
        self._bwrap = bwrap
        self._level: Contained | None = None
        self._problem = "nobody has looked"

    async def open(self) -> None:
        try:
            self._level = await asyncio.to_thread(self._contained)
        except (bubblewrap.NotContained, OSError) as exc:
            self._problem = str(exc)

    def check(self, url: str, branch: str | None) -> None:
        """Raise SandboxFailed, in words for the user, if this could never be cloned here. Looks nothing up."""
        self._cloning.check(url, branch)
        if self._level is None:
            raise SandboxFailed(
                "repoUrl: repositories for containers are cloned in a bubblewrap sandbox on the gateway's host, and "
                f"there can be none: {self._problem}. Install bubblewrap 0.8 or newer"
            )

    async def clone(self, home: SandboxHome, user: ContainerUser, url: str, branch: str | None, key: str = "") -> None:
        """Clone into the empty workspace of a session whose container does not run; what is cloned belongs to `user`.
        Raises SandboxFailed, OSError."""
        self.check(url, branch)
        assert self._level is not None, "checked"

        def give(tree: Path) -> None:
            if user.given:
                give_tree(tree, user.owner, user.owner_group)

        await self._cloning.clone(home, self._level, url, branch, key=key, give=give)

    def _contained(self) -> Contained:
        level = Contained(self._bwrap or bubblewrap.find(), self._host.data_dir, SandboxLimits(), self._readable)
        level.check()
        return level
