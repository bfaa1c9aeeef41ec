"""`holdfast messages` as people run it: what is kept, what comes, and what is told beside it."""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from tests.support.gateway import PASSED_ON, Gateway
from tests.support.launcher import Launched, launch

# Separators of lines that are none in JSON. The reader of the stream once took them for some, and failed.
ODD = "a\u2028b\u0085c\x0bd"


@asynccontextmanager
async def running(gateway: Gateway, *words: str) -> AsyncIterator[Launched]:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    process = await launch(
        "messages", *words,
        env=base | {"HOLDFAST_DATA_DIR": str(gateway.data_dir)}, limit=4 << 20,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def note(gateway: Gateway, content: str) -> None:
    async with gateway.http(gateway.internal) as service:
        body = {"role": "system", "type": "note", "content": content}
        assert (await service.post("/internal/sessions/s/messages", json=body)).status_code == 201


async def test_following_reads_whatever_may_stand_in_a_record(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", AGENT="true") as gateway, asyncio.timeout(60):
        await gateway.create("s")
        await note(gateway, ODD)
        async with running(gateway, "s", "--follow", "--json") as process:
            assert process.stdout is not None
            assert json.loads(await process.stdout.readline())["content"] == ODD
            await note(gateway, f"{ODD} again")
            assert json.loads(await process.stdout.readline())["content"] == f"{ODD} again"


async def test_what_is_gone_is_told_beside_what_is_kept(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", AGENT="true") as gateway, asyncio.timeout(60):
        await gateway.create("s")
        for number in range(1, 6):
            await note(gateway, f"note {number}")
        with closing(sqlite3.connect(gateway.data_dir / "holdfast.db")) as db, db:
            db.execute("DELETE FROM messages WHERE seq < 4")
            db.execute("UPDATE sessions SET first_seq = 4")
        async with running(gateway, "s") as process:
            out, err = await process.communicate()
        assert process.returncode == 0
        assert next(line for line in out.decode().splitlines() if line.startswith("#")).startswith("#4 ")
        assert err.decode() == "holdfast: the messages before #4 have been removed\n"


async def test_a_store_that_is_behind_is_told_beside(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data", STORE="http://127.0.0.1:9", AGENT="true") as gateway, asyncio.timeout(60):
        await gateway.create("s")
        await note(gateway, "one")
        async with running(gateway, "s") as process:
            out, err = await process.communicate()
        assert process.returncode == 0
        assert "one" in out.decode()
        assert "the store is behind" in err.decode()
