"""`holdfast export`: stored conversations as lines of JSON, to a file or to stdout."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from gateway.cli.client.api import CommandFailed, GatewayApi, find_gateway
from gateway.cli.console.output import complain
from gateway.config.settings import Settings, resolve_secrets

PROGRESS_SECONDS = 0.2


async def export(
    settings: Settings, *, session_id: str | None, user: str | None, output: str | None, url: str | None
) -> int:
    """Write every record, or fail: a file with the requested name is complete."""
    token = resolve_secrets(settings).internal_token.get_secret_value()
    path = "/internal/export" if session_id is None else f"/internal/sessions/{quote(session_id, safe='')}/export"
    params = {} if user is None else {"userId": user}
    progress = ExportProgress()
    async with GatewayApi(find_gateway(settings, url), lambda: {"X-Service-Token": token}) as api:
        with target_file(output) as file:
            async for line in api.export(path, **params):
                file.write(line + b"\n")
                progress.add(len(line) + 1)
    progress.clear()
    if output is not None:
        complain(f"{progress} in {output}")
    return 0


class ExportProgress:
    """Progress on stderr, if that is a terminal."""

    def __init__(self) -> None:
        self._records = 0
        self._bytes = 0
        self._shown = sys.stderr.isatty()
        self._last = time.monotonic()

    def __str__(self) -> str:
        return f"{self._records:,} records, {self._bytes / 2**20:,.1f} MiB"

    def add(self, size: int) -> None:
        self._records += 1
        self._bytes += size
        if self._shown and time.monotonic() - self._last >= PROGRESS_SECONDS:
            self._last = time.monotonic()
            sys.stderr.write(f"\r\x1b[K{self}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def target_file(output: str | None) -> Iterator[BinaryIO]:
    """The file to write: FILE.part, which becomes FILE once everything is in it and on the disk."""
    if output is None:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the rest of its buffer is dropped
            raise CommandFailed(f"it was not all written: {error.strerror or error}") from error
        return
    part = Path(f"{output}.part")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(output)
    except OSError as error:
        raise CommandFailed(f"cannot write {output}: {error.strerror or error}") from error
