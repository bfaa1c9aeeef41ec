"""Where recordings go: a file for each time a session is loaded, written by a thread.

Bounds: a file has at most `RECORDING_BYTES`, and at most `WAITING_BYTES` of all files wait for the disk. A recording
that would have more, or that cannot be written, ends with a line that says so, if that can be written; the session goes
on. A crash loses what waits. The files are readable by this user alone. Nobody removes them but the operator.
"""

import json
import os
import queue
import stat
import threading
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger()

RECORDING_BYTES = 64 << 20
WAITING_BYTES = 16 << 20
CLOSE_SECONDS = 5.0


def prepare_directory(path: Path) -> None:
    """Make the directory if there is none. Raises OSError, also if others may look into it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if found.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"others may look into {path}: chmod 700 it")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written")


class RecordingFile:
    """One recording. `over` is true once nothing more is written to it."""

    def __init__(self, fd: int, path: Path, owner: "RecordingFiles") -> None:
        self.fd = fd
        self.path = path
        self._owner = owner
        self._bytes = 0
        self.over = False

    def write(self, entry: dict[str, Any]) -> None:
        if self.over:
            return
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        if self._bytes + len(line) > self._owner.recording_bytes:
            self.stop(f"the recording has its {self._owner.recording_bytes} bytes")
        elif not self._owner.put(self, line):
            self.stop("the disk is too slow for it")
        else:
            self._bytes += len(line)

    def stop(self, why: str) -> None:
        """Record no more of this session."""
        if not self.over:
            log.warning("recording.stopped", path=str(self.path), cause=why)
            self.end(json.dumps({"stopped": why}).encode() + b"\n")

    def end(self, last: bytes = b"") -> None:
        if not self.over:
            self.over = True
            self._owner.put(self, last, end=True)


class RecordingFiles:
    def __init__(
        self, directory: Path, *, recording_bytes: int = RECORDING_BYTES, waiting_bytes: int = WAITING_BYTES
    ) -> None:
        self._directory = directory
        self.recording_bytes = recording_bytes
        self._most_waiting = waiting_bytes
        self._waiting = 0
        self._counting = threading.Lock()
        self._lines: queue.SimpleQueue[tuple[RecordingFile, bytes, bool] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None

    def open(self, session_id: str, fence: int) -> RecordingFile | None:
        """None if there can be none: that is logged. A session's fence is another each time it is loaded."""
        for attempt in range(100):
            name = f"{session_id}.{fence}.jsonl" if not attempt else f"{session_id}.{fence}.{attempt}.jsonl"
            path = self._directory / name
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                continue
            except OSError as error:
                log.warning("recording.not_begun", path=str(path), cause=str(error))
                return None
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="recordings", daemon=True)
                self._writer.start()
            return RecordingFile(fd, path, self)
        log.warning("recording.not_begun", path=str(self._directory), cause="there are too many of this session")
        return None

    def put(self, file: RecordingFile, line: bytes, *, end: bool = False) -> bool:
        """False if too much waits already."""
        with self._counting:
            if self._waiting + len(line) > self._most_waiting and not end:
                return False
            self._waiting += len(line)
        self._lines.put((file, line, end))
        return True

    def close(self) -> None:
        """Returns when all is written, or after a while."""
        if self._writer is not None:
            self._lines.put(None)
            self._writer.join(CLOSE_SECONDS)
            self._writer = None

    def _write(self) -> None:
        failed: set[RecordingFile] = set()
        while (found := self._lines.get()) is not None:
            file, line, end = found
            with self._counting:
                self._waiting -= len(line)
            if file not in failed:
                try:
                    _write_all(file.fd, line)
                except OSError as error:
                    failed.add(file)
                    file.over = True
                    os.close(file.fd)
                    log.warning("recording.failed", path=str(file.path), cause=str(error))
            if end:
                if file in failed:
                    failed.discard(file)
                else:
                    os.close(file.fd)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
