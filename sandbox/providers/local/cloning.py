"""Puts a session's repository into its workspace before anything of the session runs.

It is cloned beside the workspace, and replaces the empty one in one step. However a clone ends, no half workspace is
left.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.local import clone, one_shot
from sandbox.providers.local.host import LocalHost
from sandbox.providers.local.isolation import Level, plain_env
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.teardown import end
from sandbox.tree.kept_roots import make_roots

CLONE_SECONDS = 300.0
_FOR_GIT = ("GIT_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Cloning:
    def __init__(self, host: LocalHost, base_env: Mapping[str, str], *, seconds: float, allow_private: bool) -> None:
        """Of `base_env`, git gets its own variables."""
        self._host = host
        self._env = {name: value for name, value in base_env.items() if name.upper().startswith(_FOR_GIT)}
        self._seconds = seconds
        self._allow_private = allow_private

    def check(self, url: str, branch: str | None) -> None:
        """Raise SandboxFailed unless git may get this. Looks nothing up."""
        try:
            clone.check_repo(url, branch, allow_private=self._allow_private)
        except ValueError as exc:
            raise SandboxFailed(str(exc)) from exc

    async def clone(
        self,
        home: SandboxHome,
        level: Level,
        url: str,
        branch: str | None,
        *,
        key: str = "",
        give: Callable[[Path], None] = lambda tree: None,
    ) -> None:
        """Clone as a sandbox of that level would, on the host's network. The workspace must be empty, or missing;
        `give` is called with the clone before it takes that place. Raises SandboxFailed, OSError."""
        self.check(url, branch)
        try:
            pin = await asyncio.to_thread(clone.resolve, url, allow_private=self._allow_private)
        except ValueError as exc:
            raise SandboxFailed(str(exc)) from exc
        except OSError as exc:
            raise SandboxFailed(f"repoUrl: the host was not found: {exc.strerror}") from exc
        staging = home.root / "clone"
        if staging.exists():
            await end(home, patience=0, thorough=True)  # a gateway died while it cloned; its git may still be at it
        await asyncio.to_thread(self._host.trash.take, staging)
        workspace = staging / "workspace"
        staging.mkdir(mode=0o700)
        make_roots(staging)
        try:
            inside = level.places(home).workspace if level.name == "contained" else str(workspace)
            command = clone.command(url, branch, f"{inside}/repository", pin)
            env = clone.environment({**plain_env(home), **self._env, "HOME": f"{inside}"}, url, key)
            with level.one_shot(staging, "outbound", command) as git:
                await one_shot.run(git, env, timeout=self._seconds)
            await asyncio.to_thread(give, workspace / "repository")
            (workspace / "repository").rename(home.workspace)  # over an empty directory, or nothing
        except one_shot.OneShotFailed as exc:
            raise SandboxFailed(f"git clone failed: {clone.reason(exc.output) or exc}") from exc
        finally:
            await asyncio.to_thread(self._host.trash.take, staging)
