"""One command in a running sandbox, asked of its bridge. The answer is untrusted: bounded, and checked."""

import msgspec
from msgspec import UNSET, UnsetType

from sandbox.client.bridge_requests import CallFailed, ask
from sandbox.client.endpoint import Endpoint
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Command, CommandRefused, CommandResult
from sandbox.protocol.messages import clip

LONGEST_SECONDS = 3600.0  # the bridge's own bound comes sooner
ANSWER_SECONDS = 30.0  # beyond the command's time, for its end and the answer


class _Ask(msgspec.Struct, rename="camel", omit_defaults=True):
    argv: list[str]
    cwd: str = ""
    env: dict[str, str] = {}
    timeout: float | UnsetType = UNSET
    max_output: int | UnsetType = UNSET


class _Answer(msgspec.Struct, rename="camel"):
    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool
    truncated: bool


class _ExecError(msgspec.Struct):
    error: str


async def run(endpoint: Endpoint, command: Command) -> CommandResult:
    """As Sandbox.exec, of the bridge at `endpoint`."""
    asked = _Ask(
        argv=list(command.argv),
        cwd=command.cwd,
        env=dict(command.env),
        timeout=UNSET if command.timeout_seconds is None else command.timeout_seconds,
        max_output=UNSET if command.max_output is None else command.max_output,
    )
    seconds = min(command.timeout_seconds or LONGEST_SECONDS, LONGEST_SECONDS) + ANSWER_SECONDS
    try:
        status, answer = await ask(endpoint, "POST", "/exec", body=asked, timeout=seconds)
    except CallFailed as exc:
        raise LinkRefused(f"the bridge did not answer: {exc}") from exc
    try:
        if status == 200:
            told = msgspec.convert(answer, _Answer)
            return CommandResult(told.exit_code, told.stdout, told.stderr, told.timed_out, told.truncated)
        if status in (400, 409, 429):
            raise CommandRefused(clip(msgspec.convert(answer, _ExecError).error))
    except msgspec.ValidationError:  # its text may repeat the request
        pass
    raise LinkRefused(f"the bridge gave no answer to a command ({status})")
