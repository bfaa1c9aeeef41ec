"""xterm.js as the judge of a screen: what it makes of bytes, cell by cell and mode by mode."""

import base64
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from sandbox.terminal.screen.screen import Screen
from tests.support.node import CLIENTS, NODE

Step = bytes | tuple[int, int]  # written, or a new size
Dump = dict[str, Any]

# Its own mistake: erasing up to the end of the last row, with nothing above the screen, is more than it survives.
_ITS_OWN = "setting 'isWrapped'"


@dataclass(frozen=True)
class Seen:
    dump: Dump
    answers: list[str]


class XtermFailed(Exception):
    """xterm.js could not read it."""


class Xterm:
    """One process for many terminals, each of which is made for one question."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [NODE, CLIENTS / "screens.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin
            self._process.stdin.close()

    def see(self, cols: int, rows: int, *steps: Step, scrollback: int = 1000) -> Seen:
        """A fresh terminal after `steps`. Raises XtermFailed."""
        asked = [
            {"write": base64.b64encode(step).decode()} if isinstance(step, bytes) else {"resize": step}
            for step in steps
        ]
        assert self._process.stdin
        assert self._process.stdout
        question = {"cols": cols, "rows": rows, "scrollback": scrollback, "steps": [*asked, "dump"]}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        if said["failed"]:
            assert _ITS_OWN in said["failed"], said["failed"]
            raise XtermFailed
        return Seen(said["dumps"][-1], said["answers"])

    def tells_apart(self, screen: Screen, fed: bytes, *more: bytes, scrollback: int = 1000) -> list[str]:
        """How a fresh terminal with the screen's picture differs from one that was fed what the screen was: at once,
        and after each of `more`. A picture that is answered differs too."""
        cols, rows, picture = screen.cols, screen.rows, screen.picture()
        found = []
        for then in (b"", *more):
            try:
                right = self.see(cols, rows, fed + then, scrollback=scrollback)
            except XtermFailed:
                continue
            # One write: xterm.js itself loses some characters that are cut between two.
            shown = self.see(cols, rows, picture + then, scrollback=scrollback)
            found += [f"after {then!r}: {difference}" for difference in differences(right.dump, shown.dump)]
            if not then:
                found += [f"answered {answer!r}" for answer in shown.answers]
        return found


def differences(right: Any, shown: Any, path: str = "") -> Iterator[str]:
    """Where two dumps differ."""
    if isinstance(right, dict) and isinstance(shown, dict):
        for key in right.keys() | shown.keys():
            yield from differences(right.get(key), shown.get(key), f"{path}.{key}")
    elif isinstance(right, list) and isinstance(shown, list) and len(right) == len(shown):
        for number, (one, other) in enumerate(zip(right, shown, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif right != shown:
        yield f"{path}: {right!r}, not {shown!r}"
