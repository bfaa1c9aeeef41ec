"""A sandbox that mounts its roots is replaced by a new one after a restore. Gateway and bridges are killed at any
moment of that: programs then see the kept tree, at its usual path, and their files are kept."""

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

from websockets.exceptions import ConnectionClosed

from tests.campaign.size import seeded, sized
from tests.campaign.sync.arena import PATIENCE, Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Directory
from tests.support.chat import hear, say
from tests.support.launcher import Launcher
from tests.support.waiting import until

# Writes the named file, and answers with its directory and the files there.
LOOKING_AGENT = """
import json, os, sys
for raw in sys.stdin:
    frame = json.loads(raw)
    if frame["type"] == "message":
        open("/workspace/" + frame["content"], "w").write(frame["content"])
        found = {name: open(name).read() for name in sorted(os.listdir())}
        home = os.path.realpath(os.environ["HOME"])
        print(json.dumps({"type": "chunk", "text": json.dumps([os.getcwd(), os.path.realpath("."), home, found])}))
        print(json.dumps({"type": "done", "metadata": {"cid": frame["cid"]}}), flush=True)
"""
FAULTS = ("none", "gateway", "bridge", "both")


async def _look(arena: SyncArena, session: Kept, name: str) -> tuple[list[str], dict[str, str]]:
    """Have the agent write a file; returns its directory, and the files that it finds."""
    cid = uuid4().hex
    async with arena.gateway.chat(session.id, user=session.user) as socket:
        await say(socket, "message", cid=cid, content=name)
        shown: list[dict[str, Any]] = []
        await hear(socket, lambda frame: frame["type"] == "done" and frame["metadata"].get("cid") == cid, passed=shown)
    *where, found = json.loads([frame["text"] for frame in shown if frame["type"] == "chunk"][-1])
    return where, found


def _files(session: Kept) -> dict[str, str]:
    return {path.name: path.read_text() for path in session.home.workspace.iterdir()}


async def _wakes_until(arena: SyncArena, session: Kept, fault: str) -> None:
    """Wake it; when it is restored, and a moment has passed, the fault strikes."""
    waking: asyncio.Task[object] | None = None
    with contextlib.suppress(ConnectionClosed):
        async with arena.gateway.chat(session.id, user=session.user) as socket:
            await hear(socket, "welcome")
            waking = asyncio.create_task(session.ask("POST", "/wake", json={}))
            await hear(socket, lambda frame: frame.get("status") == "restored")
    await asyncio.sleep(session.rng.uniform(0, 0.5))
    if fault in ("gateway", "both"):
        await arena.gateway.kill()
    if fault in ("bridge", "both"):
        await session.kill_bridge()
    if waking is not None:
        await waking
    if not arena.gateway.running:
        await arena.start()


async def _round(arena: SyncArena, session: Kept, fault: str, number: int) -> None:
    session.write(f"file-{number}", session.rng.randbytes(2000).hex().encode())
    kept = _files(session)
    await session.sleep()
    session.wipe(whole=session.rng.random() < 0.5)
    await _wakes_until(arena, session, fault)

    async def runs() -> bool:
        return bool((await session.post("/wake"))["status"] == "running")

    await until(runs, lambda: f"it runs\n{arena.log}", PATIENCE)
    await session.check_restored()
    name = f"seen-{number}"
    where, found = await _look(arena, session, name)
    if where != ["/workspace", "/workspace", "/agent"]:
        session.ledger.says(f"layout: the agent is in {where}")
    if found != {**kept, name: name}:
        session.ledger.says(f"unseen: the agent finds {sorted(found)} and not {sorted(kept)}")
    generation = await session.sync()
    _, stored = await session.stored(generation)
    if f"workspace/{name}".encode() not in stored:
        session.ledger.says(f"lost: {name} is not in generation {generation}")


async def test_after_a_restore_programs_see_and_write_the_tree_that_is_kept(tmp_path: Path) -> None:
    seed, rng = seeded()
    figures: Counter[str] = Counter()
    async with (
        Launcher() as launcher,
        arena_on(
            tmp_path,
            Directory(tmp_path / "objects"),
            seed,
            rng,
            launcher=launcher,
            LOCAL_LEVEL="contained",
        ) as arena,
    ):
        session = await arena.create("s0", agent=["python3", "-c", LOOKING_AGENT])
        for number in range(sized(len(FAULTS), 60)):
            fault = FAULTS[number % len(FAULTS)]
            await _round(arena, session, fault, number)
            if fault != "none":
                figures[f"{fault} killed"] += 1
        await session.check_stored()
        arena.acquit("new sandboxes after a restore", rounds=number + 1, **figures)
