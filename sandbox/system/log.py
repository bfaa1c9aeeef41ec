"""Where a bridge writes: its own events as JSON lines on stderr, the agent's stderr in a file of bounded size."""

import contextlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Protocol


def log(event: str, **fields: object) -> None:
    """Write one event. Everything outside ASCII is escaped: nothing in a field can fake a line or reach a terminal."""
    entry = {"time": round(time.time(), 3), "event": event, **fields}
    sys.stderr.write(json.dumps(entry, default=repr) + "\n")
    sys.stderr.flush()


class JsonHandler(logging.Handler):
    """Log lines of libraries, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["trace"] = logging.Formatter().formatException(record.exc_info)
        log("bridge.library", **fields)


class ErrorLog(Protocol):
    """Takes an agent's stderr."""

    def write(self, chunk: bytes) -> None: ...
    def close(self) -> None: ...


class BoundedLog:
    """A log file of at most twice `limit`: when it is full it becomes `<name>.1`, and a new one begins."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._fd = -1
        with contextlib.suppress(OSError):
            self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def write(self, chunk: bytes) -> None:
        """Append `chunk`. On a full disk it is lost: an agent's log never stops its agent."""
        try:
            if self._fd < 0:
                self._open()
            if self._size and self._size + len(chunk) > self._limit:
                os.replace(self._path, self._path.with_name(self._path.name + ".1"))
                old = self._fd
                self._open()  # before the old one is closed: should it fail, the number must not become another's
                os.close(old)
            self._size += os.write(self._fd, chunk)
        except OSError:
            return

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
