"""The screens of real terminals for given bytes, and whether two of them are equal."""

import asyncio
import base64
import json
from collections.abc import Sequence
from typing import Any

from tests.campaign.terminal.arena import COLS, ROWS, differences
from tests.support.node import CLIENTS, NODE

SCROLLBACK = 1000
LONGEST_LINE = 64 << 20

Dump = dict[str, Any]


async def drawn(writings: Sequence[bytes]) -> list[Dump]:
    """The screen of a fresh terminal after each of `writings`."""
    node = await asyncio.create_subprocess_exec(
        NODE, "screens.mjs", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=CLIENTS,
        limit=LONGEST_LINE,
    )  # fmt: skip
    assert node.stdin is not None
    assert node.stdout is not None
    dumps: list[Dump] = []
    try:
        for written in writings:
            steps = [{"write": base64.b64encode(written).decode()}, "dump"]
            job = {"cols": COLS, "rows": ROWS, "scrollback": SCROLLBACK, "steps": steps}
            node.stdin.write(json.dumps(job).encode() + b"\n")
            await node.stdin.drain()
            told = json.loads(await node.stdout.readline())
            assert told["failed"] is None, told["failed"]
            dumps.append(told["dumps"][0])
    finally:
        node.stdin.close()
        await node.wait()
    return dumps


def unlike(one: Dump, other: Dump) -> list[str]:
    """The differences between two screens. Of the scrollback they must agree on the part that both have: a flood is
    not drawn as a whole."""
    first, second = one["normal"], other["normal"]
    shared = min(first["base"], second["base"])
    pages = [{**page, "lines": page["lines"][page["base"] - shared :], "base": shared} for page in (first, second)]
    return differences({**one, "normal": pages[0]}, {**other, "normal": pages[1]})
