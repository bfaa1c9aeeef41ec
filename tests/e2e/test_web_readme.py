"""The client's README: its example, run as it stands against a real gateway."""

import asyncio
import json
import re
from pathlib import Path

from tests.support.gateway import Gateway
from tests.support.node import NODE
from tests.support.web_client import CLIENT

# Whoever runs the example has a page that gives its user a token: here it is this one.
PRELUDE = """
const real = globalThis.fetch;
globalThis.fetch = async (url, ...rest) =>
  url === "https://app.example.com/token" ? new Response(%s) : real(url, ...rest);
"""


def example() -> str:
    (code,) = re.findall(r"^```ts\n(.*?)^```", (CLIENT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert isinstance(code, str)
    return code


async def test_the_example_gets_an_answer_and_a_terminal(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first")
        code = PRELUDE % json.dumps(gateway.token()) + example().replace("https://gateway.example.com", gateway.url)
        process = await asyncio.create_subprocess_exec(
            NODE, "--conditions=source", "--input-type=module-typescript", "--eval", code,
            cwd=CLIENT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        wanted, said = {"stored as 1", "complete hello", "42"}, ""
        try:
            async with asyncio.timeout(60):
                while wanted and (line := await process.stdout.readline()):
                    said += line.decode()
                    wanted -= {said.rstrip("\r\n").rsplit("\n", 1)[-1].strip().removeprefix("\x1b[?2004l").strip()}
        finally:
            process.kill()
            await process.wait()
    assert not wanted, said
