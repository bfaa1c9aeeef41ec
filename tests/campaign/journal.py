"""A campaign's actions and answers, as JSON lines in a file: the checker's only knowledge of it."""

import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO


class Journal:
    """The checker can read each line as soon as it is written. Without a path nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: TextIO | None = path.open("a", buffering=1) if path is not None else None

    def note(self, event: str, **members: Any) -> None:
        if self._file is not None:
            self._file.write(json.dumps({"at": time.time(), "event": event, **members}) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


NOWHERE = Journal(None)


def digest(content: str) -> str:
    return sha256(content.encode()).hexdigest()
