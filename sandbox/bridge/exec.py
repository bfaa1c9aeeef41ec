"""Commands on request: one process group each, bounded in time and output. Nothing of a command is left afterwards."""

import asyncio
import secrets
import signal
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sandbox.bridge.base.config import Config, env_pair_is_usable
from sandbox.protocol.messages import Arguments, Text
from sandbox.system.child import Child, Reader, kill_marked

MAX_OUTPUT = 8 * 1024 * 1024
TERM_SECONDS = 2.0  # from SIGTERM to SIGKILL
TRICKLE_SECONDS = 0.01  # between two reads of discarded output, so that a flood costs its writer, not the bridge

MARKER = "HOLDFAST_EXEC"


class BadCommand(Exception):
    """The request cannot run. The text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ExecCommand:
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    timeout: float
    max_output: int


class ExecBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A request: `argv`, or `command` for `sh -c`; `timeout` in seconds, `max_output` in bytes for each of stdout and
    stderr."""

    argv: Arguments | UnsetType = UNSET
    command: Text | UnsetType = UNSET
    cwd: Text = ""
    env: dict[str, str] = {}
    timeout: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    max_output: Annotated[float, Meta(ge=0)] | UnsetType = UNSET

    __repr__ = object.__repr__  # `env` holds secrets


WORDS = {
    "": "the body must be an object; known members are argv, command, cwd, env, timeout, maxOutput",
    "argv": "argv must be a list of strings, command a string",
    "command": "argv must be a list of strings, command a string",
    "cwd": "cwd must be a path",
    "env": "env must be an object of strings",
    "timeout": "timeout must be a number of seconds",
    "maxOutput": "maxOutput must be a number of bytes",
}
BODY = msgspec.json.Decoder(ExecBody)


def parse_command(body: ExecBody, config: Config) -> ExecCommand:
    """Raises BadCommand."""
    if body.argv is not UNSET and body.command is UNSET:
        argv = body.argv
    elif body.command is not UNSET and body.argv is UNSET:
        argv = ["/bin/sh", "-c", body.command]
    else:
        raise BadCommand("give either argv or command")
    if not argv[0]:
        raise BadCommand(WORDS["argv"])
    if not all(env_pair_is_usable(*pair) for pair in body.env.items()):
        raise BadCommand(WORDS["env"])
    timeout = config.exec_timeout if body.timeout is UNSET else body.timeout
    max_output = config.limits.exec_output_bytes if body.max_output is UNSET else body.max_output
    return ExecCommand(
        argv=tuple(argv),
        cwd=str(Path(config.workspace, body.cwd)),
        env=body.env,
        timeout=min(timeout, config.exec_timeout),
        max_output=int(min(max_output, MAX_OUTPUT)),
    )


class _Capture:
    """Keeps the first `limit` bytes of a pipe. Reads the rest slowly, and counts it."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._total = 0
        self.ended = asyncio.Event()
        self.reader = Reader(descriptor, self._on_chunk)

    def _on_chunk(self, chunk: bytes) -> None:
        if not chunk:
            self.ended.set()
            return
        self._total += len(chunk)
        self._kept += chunk[: self._limit - len(self._kept)]
        if self.truncated:
            self.reader.pause()
            asyncio.get_running_loop().call_later(TRICKLE_SECONDS, self.reader.resume)

    @property
    def truncated(self) -> bool:
        return self._total > self._limit

    def text(self) -> str:
        text = self._kept.decode(errors="replace")
        return f"{text}\n[truncated: {self._total - self._limit} more bytes]" if self.truncated else text


async def run_command(command: ExecCommand, config: Config, gone: Awaitable[None]) -> dict[str, Any]:
    """Run it to its end, its timeout, or until `gone` says that nobody waits for the answer. Raises BadCommand if it
    cannot start."""
    mark = secrets.token_hex(8)
    env = {**config.environment, **command.env, MARKER: mark}
    try:
        child = Child(command.argv, cwd=command.cwd, env=env, with_input=False)
    except (OSError, ValueError) as exc:
        cause = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise BadCommand(f"cannot run {command.argv[0]!r} in {command.cwd!r}: {cause}") from exc
    captures = _Capture(child.output, command.max_output), _Capture(child.errors, command.max_output)
    leaving: asyncio.Future[None] = asyncio.ensure_future(gone)
    enough: set[asyncio.Future[Any]] = {child.ended, leaving}
    try:
        await asyncio.wait(enough, timeout=command.timeout, return_when=asyncio.FIRST_COMPLETED)
        timed_out = not child.ended.done()
        if timed_out:
            child.signal_group(signal.SIGTERM)
            await asyncio.wait({child.ended}, timeout=TERM_SECONDS)
            child.signal_group(signal.SIGKILL)
            await child.ended
        kill_marked(f"{MARKER}={mark}")
        for capture in captures:
            capture.reader.end_when_silent(config.limits.drain_seconds)
        await _drain(captures, config.limits.drain_seconds)
    finally:
        # Also if this request is cancelled: a command never outlives its request.
        leaving.cancel()
        child.signal_group(signal.SIGKILL)
        for capture in captures:
            capture.reader.close()
    code = child.ended.result()
    return {
        "stdout": captures[0].text(),
        "stderr": captures[1].text(),
        "exitCode": code if code >= 0 else 128 - code,
        "timedOut": timed_out,
        "truncated": captures[0].truncated or captures[1].truncated,
    }


async def _drain(captures: tuple[_Capture, _Capture], seconds: float) -> None:
    """Read what dead processes left in the pipes. A process that still writes after that is not waited for."""
    try:
        async with asyncio.timeout(2 * seconds + 1):
            for capture in captures:
                await capture.ended.wait()
    except TimeoutError:
        return
