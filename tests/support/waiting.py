"""Waiting for a state that another process or task brings about: the one way in which tests do it.

A look that finds nothing yet may say so in any way that comes naturally: by a false value, by an assertion that does
not hold, by a file that is not there, by text that is not whole and cannot be parsed.
"""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

T = TypeVar("T")
What: TypeAlias = str | Callable[[], str]
PATIENCE = 60.0  # a hundred times what a busy machine needs: only an event that never comes uses it up
NOT_YET = (AssertionError, FileNotFoundError, ValueError)


@overload
async def until(look: Callable[[], Awaitable[T | None]], what: What = "it", within: float = PATIENCE) -> T: ...
@overload
async def until(look: Callable[[], T | None], what: What = "it", within: float = PATIENCE) -> T: ...
async def until(look: Callable[[], Any], what: What = "it", within: float = PATIENCE) -> Any:
    """The result of `look`, once that is true. If it never is, the error names `what`, with the last error that
    `look` raised; a function is called for it then, and may describe the state."""
    last: Exception | None = None
    limit = asyncio.timeout(within)
    try:
        async with limit:
            while True:
                pause = 0.01
                try:
                    looked = look()
                    if inspect.isawaitable(looked):
                        pause = 0.03  # a request costs the other side some work
                        looked = await looked
                    if looked:
                        return looked
                    last = None
                except NOT_YET as error:
                    last = error
                await asyncio.sleep(pause)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(_never(what, within, last)) from last


def blocking_until(look: Callable[[], T | None], what: What = "it", within: float = PATIENCE) -> T:
    """The same where there is no event loop."""
    deadline = time.monotonic() + within
    while True:
        last: Exception | None = None
        try:
            if found := look():
                return found
        except NOT_YET as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(_never(what, within, last)) from last
        time.sleep(0.01)


def _never(what: What, within: float, last: Exception | None) -> str:
    said = what if isinstance(what, str) else what()
    return f"never within {within:g} s: {said}" + (f"; last: {last!r}" if last is not None else "")


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that another process writes, without an unfinished one; none if there is no file."""
    try:
        return path.read_bytes().rpartition(b"\n")[0].decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def files_with(needle: bytes, root: Path) -> list[Path]:
    """The files under `root` that contain it, while others write there: journals and staged files come and go."""
    found = []
    for path in root.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink() and needle in path.read_bytes():
                found.append(path)
    return found


def held_below(path: Path) -> list[str]:
    """Paths at or below `path` that this process has open: other threads open and close other files meanwhile."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
    return [each for each in found if each == str(path) or each.startswith(f"{path}/")]
