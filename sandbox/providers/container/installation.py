"""The ids by which this gateway's containers are known.

The installation's id is in the store: a gateway that opens the store finds the containers that belong to it, and two
installations can share an engine. The data directory has its own id, because containers mount its roots. A second
directory on the same store, or a copy of the store that was restored elsewhere, has other containers for the same
sessions, and may not touch these. The first directory's id becomes the installation's.
"""

import json
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

# The store's answer when the id is proposed to it; None if it does not answer now.
Propose = Callable[[str], Awaitable[str | None]]

# Of containers that were made to try an engine, and belong to no session. Any gateway may remove their remains.
TRIALS = "doctor"

_ID = re.compile(r"[0-9a-zA-Z-]{1,64}")
_MOST = 16


class Installation:
    """`home` is the directory's own id, `current` the installation's, `known` every one that containers of this
    directory may carry: it may have been used with another store before, or while its own did not answer."""

    def __init__(self, data_dir: Path, propose: Propose | None) -> None:
        self._own = data_dir / "installation"
        self._noted = data_dir / "installations"
        self._inode = data_dir / "installation-inode"
        self._propose = propose
        self._settled = propose is None
        self.home = ""
        self.known: tuple[str, ...] = ()  # the current one first

    @property
    def current(self) -> str:
        return self.known[0]

    def open(self) -> None:
        """Read the noted ids, and make the directory's own id if there is none. Raises OSError."""
        inode = str(self._own.parent.stat().st_ino)
        is_copy = _read_id(self._inode) not in ("", inode)
        self.home = ("" if is_copy else _read_id(self._own)) or _make_own(self._own)
        if _read_id(self._inode) != inode:
            _put(self._inode, inode)
        self.known = tuple(dict.fromkeys((*_read_noted(self._noted), self.home)))

    async def settle(self) -> None:
        """Ask the store, until it has answered once. Raises OSError."""
        if self._settled or self._propose is None:
            return
        said = await self._propose(self.home)
        if said is not None and _ID.fullmatch(said):
            known = tuple(dict.fromkeys((said, *self.known)))[:_MOST]
            if known != self.known:
                _put(self._noted, json.dumps(known))
            self.known, self._settled = known, True


def _read_id(path: Path) -> str:
    with suppress(FileNotFoundError):
        if _ID.fullmatch(found := path.read_text()):
            return found
    return ""


def _make_own(path: Path) -> str:
    _put(path, made := secrets.token_hex(8))
    return made


def _read_noted(path: Path) -> list[str]:
    with suppress(FileNotFoundError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, list):
            return [each for each in found if isinstance(each, str) and _ID.fullmatch(each)]
    return []


def _put(path: Path, content: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(content)
    draft.rename(path)
