"""Runs one command, as a sandbox would run it, with a bound on its time and on its output."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

from sandbox.providers.local.isolation import OneShot

_OUTPUT_BYTES = 16 * 1024


class OneShotFailed(Exception):
    """It could not start, took too long, or failed; `output` is its last output."""

    def __init__(self, what: str, output: bytes = b"") -> None:
        super().__init__(what)
        self.output = output


async def run(command: OneShot, env: Mapping[str, str], *, timeout: float) -> None:
    """Run to the end, in a session of its own that is killed as a whole when this is cancelled or takes too long.
    Raises OneShotFailed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            env=dict(env),
            pass_fds=command.descriptors,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as exc:
        raise OneShotFailed(f"{command.argv[0]} cannot be run: {exc}") from exc
    assert process.stdout is not None
    output = bytearray()
    try:
        async with asyncio.timeout(timeout):
            while piece := await process.stdout.read(4096):
                output += piece
                del output[:-_OUTPUT_BYTES]
            code = await process.wait()
    except TimeoutError:
        raise OneShotFailed(f"not done after {timeout:g} s", bytes(output)) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # the pipe may be held by a process of the group
    if code != 0:
        raise OneShotFailed(f"exit code {code}", bytes(output))
