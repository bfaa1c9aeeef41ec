"""The files of recordings: one for each time a session is loaded, written by a thread.

Bounds: a file has at most `RECORDING_BYTES`, all files of the directory have at most `DIRECTORY_BYTES`, and at most
`WAITING_BYTES` of all files wait for the disk. A recording that would have more, or that cannot be written, ends with a
line that says so, if that can be written; the session goes on. A crash loses the bytes that wait. The files are
readable by this user alone. Only the operator removes them.

A file is made with its first line, and is open only during a write: there may be as many recordings as there are
sessions.
"""

import json
import os
import queue
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger()

RECORDING_BYTES = 64 << 20
DIRECTORY_BYTES = 4 << 30
WAITING_BYTES = 16 << 20
COUNT_SECONDS = 10.0  # pause between two looks at a full directory: someone may have made room
CLOSE_SECONDS = 5.0
SUFFIX = ".jsonl"


def prepare_directory(path: Path) -> None:
    """Make the directory if there is none. Raises OSError, also if other users can read it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"others may look into {path}: chmod 700 it")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written")


class RecordingFile:
    """One recording. `over` is true once it takes no more lines."""

    def __init__(self, path: Path, owner: "RecordingFiles") -> None:
        self.path = path  # changes if a file of that name exists when this one is made
        self.over = False
        self.lines: list[bytes] = []  # waiting for the disk
        self.begun = self.failed = False  # for the writing thread alone
        self._owner = owner
        self._bytes = 0

    def write(self, entry: dict[str, Any]) -> None:
        if self.over:
            return
        line = _line(entry)
        if self._bytes + len(line) > self._owner.recording_bytes:
            self.stop(f"the recording has its {self._owner.recording_bytes} bytes")
        elif not self._owner.put(self, line):
            self.stop("the disk is too slow for it")
        else:
            self._bytes += len(line)

    def stop(self, why: str) -> None:
        """Record no more of this session."""
        if not self.over:
            self.over = True
            log.warning("recording.stopped", path=str(self.path), cause=why)
            self._owner.put(self, _line({"stopped": why}), last=True)

    def end(self) -> None:
        self.over = True


class RecordingFiles:
    def __init__(
        self,
        directory: Path,
        *,
        recording_bytes: int = RECORDING_BYTES,
        directory_bytes: int = DIRECTORY_BYTES,
        waiting_bytes: int = WAITING_BYTES,
        count_seconds: float = COUNT_SECONDS,
    ) -> None:
        self._directory = directory
        self.recording_bytes = recording_bytes
        self._directory_bytes = directory_bytes
        self._most_waiting = waiting_bytes
        self._count_seconds = count_seconds
        self._waiting = 0
        self._lock = threading.Lock()  # guards `_waiting`, and the waiting lines of each file
        self._due: queue.SimpleQueue[RecordingFile | None] = queue.SimpleQueue()  # files with waiting lines
        self._writer: threading.Thread | None = None
        self._kept = 0  # bytes of all files; for the writing thread alone
        self._counted_at: float | None = None

    def open(self, session_id: str, fence: int) -> RecordingFile:
        """The recording of one load of a session. Its file is made with its first line. The fence differs for each
        load, so names do not clash."""
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="recordings", daemon=True)
            self._writer.start()
        return RecordingFile(self._directory / f"{session_id}.{fence}{SUFFIX}", self)

    def put(self, file: RecordingFile, line: bytes, *, last: bool = False) -> bool:
        """Queue a line for the disk. False if too many bytes wait already."""
        with self._lock:
            if self._waiting + len(line) > self._most_waiting and not last:
                return False
            self._waiting += len(line)
            file.lines.append(line)
            known = len(file.lines) > 1
        if not known:
            self._due.put(file)
        return True

    def close(self) -> None:
        """Return when all is written, or after a while."""
        if self._writer is not None:
            self._due.put(None)
            self._writer.join(CLOSE_SECONDS)
            self._writer = None

    # -- in the writing thread ----------------------------------------------------------------------------------------

    def _write(self) -> None:
        while (file := self._due.get()) is not None:
            with self._lock:
                lines, file.lines = file.lines, []
            data = b"".join(lines)
            try:
                if not file.failed:
                    self._store(file, data)
            except OSError as error:
                self._fail(file, "recording.failed" if file.begun else "recording.not_begun", str(error))
            with self._lock:
                self._waiting -= len(data)

    def _store(self, file: RecordingFile, data: bytes) -> None:
        if self._has_room(len(data)):
            self._append(file, data)
            return
        why = f"the recordings have their {self._directory_bytes} bytes: remove some"
        self._fail(file, "recording.stopped" if file.begun else "recording.not_begun", why)
        if file.begun:
            self._append(file, _line({"stopped": why}))

    def _fail(self, file: RecordingFile, event: str, why: str) -> None:
        """Stop writing this file."""
        file.over = file.failed = True
        log.warning(event, path=str(file.path), cause=why)

    def _has_room(self, size: int) -> bool:
        most, now = self._directory_bytes - size, time.monotonic()
        if self._counted_at is None or (self._kept > most and now - self._counted_at >= self._count_seconds):
            self._kept, self._counted_at = _bytes_in(self._directory), now
        return self._kept <= most

    def _append(self, file: RecordingFile, data: bytes) -> None:
        fd = _opened(file.path, os.O_APPEND) if file.begun else self._make(file)
        try:
            while data:
                written = os.write(fd, data)
                self._kept += written
                data = data[written:]
        finally:
            os.close(fd)

    def _make(self, file: RecordingFile) -> int:
        first = file.path
        for attempt in range(100):
            path = first.with_suffix(f".{attempt}{SUFFIX}") if attempt else first
            try:
                fd = _opened(path, os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue
            file.path, file.begun = path, True
            return fd
        raise FileExistsError("there are too many of this session")


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _opened(path: Path, how: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o600)


def _bytes_in(directory: Path) -> int:
    count = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    count += entry.stat(follow_symlinks=False).st_size
    return count
