"""Makes the kept roots before a sandbox mounts them.

Beside them may be an interrupted swap, or anything that a program made. A separate process deals with that, for a
bounded time.
"""

import asyncio
import contextlib
from pathlib import Path

from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.local import clone, one_shot
from sandbox.providers.local.host import LocalHost
from sandbox.providers.local.isolation import Level, plain_env
from sandbox.providers.local.layout import SandboxHome
from sandbox.system.interpreter import PYTHON
from sandbox.tree import kept_roots
from sandbox.tree.root_swap import TRASH


async def make_roots(host: LocalHost, level: Level, home: SandboxHome, *, seconds: float) -> None:
    """Work beyond a look runs at that `level`. Raises SandboxFailed, OSError."""
    if await asyncio.to_thread(_made_at_once, host, home.kept):
        return
    places = level.places(home)
    command = [PYTHON, "-P", "-s", "-m", "sandbox.tree.kept_roots", places.kept]
    env = {**plain_env(home), "PYTHONPATH": places.code}
    try:
        with level.one_shot(home.kept, "none", command, roots=False) as made:
            await one_shot.run(made, env, timeout=seconds)
    except one_shot.OneShotFailed as exc:
        raise SandboxFailed(f"its directories could not be made: {clone.reason(exc.output) or exc}") from exc


def _made_at_once(host: LocalHost, kept: Path) -> bool:
    kept.chmod(0o700)
    with contextlib.suppress(OSError):  # what a restore has replaced may be large: nobody waits for its removal
        host.trash.take(kept / TRASH)
    if not kept_roots.is_plain(kept):
        return False
    kept_roots.make_roots(kept)
    return True
