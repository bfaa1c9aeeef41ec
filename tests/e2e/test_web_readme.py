"""The examples of the client's README and of the project's, run as they stand against a real gateway."""

import asyncio
import json
import re
from pathlib import Path

from tests.support.gateway import REPOSITORY, Gateway
from tests.support.node import NODE
from tests.support.web_client import CLIENT

# Whoever runs the example has a page that gives its user a token: here it is this one.
PRELUDE = """
const real = globalThis.fetch;
globalThis.fetch = async (url, ...rest) =>
  url === "https://app.example.com/token" ? new Response(%s) : real(url, ...rest);
"""


# What a page has that shows a conversation.
PAGE = """
const [location, getToken] = [{ origin: %s }, async () => %s];
const answers = (items) => items.filter((each) => each.kind === "answer");
const draw = (items) => answers(items).map((each) => console.log(each.status, each.text));
"""


def example(page: Path) -> str:
    (code,) = re.findall(r"^```ts\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert isinstance(code, str)
    return code


async def run(code: str, wanted: set[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        NODE, "--conditions=source", "--input-type=module-typescript", "--eval", code,
        cwd=CLIENT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(60):
            while wanted and (line := await process.stdout.readline()):
                said += line.decode()
                wanted -= {said.rstrip("\r\n").rsplit("\n", 1)[-1].strip().removeprefix("\x1b[?2004l").strip()}
    finally:
        process.kill()
        await process.wait()
    assert not wanted, said


async def test_the_example_gets_an_answer_and_a_terminal(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first")
        code = example(CLIENT / "README.md").replace("https://gateway.example.com", gateway.url)
        await run(PRELUDE % json.dumps(gateway.token()) + code, {"stored as 1", "complete hello", "42"})


async def test_the_example_of_the_first_page_draws_an_answer(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("first")
        page = PAGE % (json.dumps(gateway.url), json.dumps(gateway.token()))
        await run(page + example(REPOSITORY / "README.md"), {"complete hello"})
