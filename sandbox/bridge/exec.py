"""Commands on request: one process group each, bounded in time and output, and nothing of it left afterwards."""

import asyncio
import secrets
import signal
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.bridge.base.config import Config, env_pair_is_usable
from sandbox.system.child import Child, Reader, kill_marked

MAX_OUTPUT = 8 * 1024 * 1024
MAX_ARGUMENTS = 4096
TERM_SECONDS = 2.0  # from SIGTERM to SIGKILL
TRICKLE_SECONDS = 0.01  # between two reads of output that nobody keeps, so that a flood costs its writer, not us

MARKER = "HOLDFAST_EXEC"


class BadCommand(Exception):
    """The request cannot be run; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    timeout: float
    max_output: int


def parse_command(members: Any, config: Config) -> Command:
    """Check a request: `argv` or `command` (for `sh -c`), `cwd`, `env`, `timeout` in seconds, `maxOutput` in bytes for
    each of stdout and stderr. Raises BadCommand."""
    if not isinstance(members, dict):
        raise BadCommand("the body must be an object")
    unknown = members.keys() - {"argv", "command", "cwd", "env", "timeout", "maxOutput"}
    if unknown:
        raise BadCommand("known members are argv, command, cwd, env, timeout, maxOutput")
    if ("argv" in members) == ("command" in members):
        raise BadCommand("give either argv or command")
    argv = members["argv"] if "argv" in members else ["/bin/sh", "-c", members["command"]]
    if not isinstance(argv, list) or not 0 < len(argv) <= MAX_ARGUMENTS or not all(map(_is_text, argv)) or not argv[0]:
        raise BadCommand("argv must be a list of strings, command a string")
    cwd = members.get("cwd", "")
    if not _is_text(cwd):
        raise BadCommand("cwd must be a path")
    env = members.get("env", {})
    if not isinstance(env, dict) or not all(env_pair_is_usable(*pair) for pair in env.items()):
        raise BadCommand("env must be an object of strings")
    timeout = members.get("timeout", config.exec_timeout)
    if not _is_number(timeout) or timeout <= 0:
        raise BadCommand("timeout must be a number of seconds")
    max_output = members.get("maxOutput", config.limits.exec_output_bytes)
    if not _is_number(max_output) or max_output < 0:
        raise BadCommand("maxOutput must be a number of bytes")
    return Command(
        argv=tuple(argv),
        cwd=str(Path(config.workspace, cwd)),
        env=env,
        timeout=min(timeout, config.exec_timeout),
        max_output=int(min(max_output, MAX_OUTPUT)),
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


class _Capture:
    """The first `limit` bytes of a pipe. The rest is read slowly and counted."""

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


async def run_command(command: Command, config: Config, gone: Awaitable[None]) -> dict[str, Any]:
    """Run it to its end, its timeout, or until `gone` says that nobody waits for the answer. Raises BadCommand if it
    cannot be started."""
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
        # Also when this request is cancelled: a command never outlives its request.
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
    """Read what the dead left in the pipes; what still writes after that has no business doing so."""
    try:
        async with asyncio.timeout(2 * seconds + 1):
            for capture in captures:
                await capture.ended.wait()
    except TimeoutError:
        return
