"""A canary in `envVars`, and the keys of the bucket: the one is found in no object, the others in no sandbox."""

import secrets
from pathlib import Path

import pytest

from sandbox.providers.local.processes import children
from tests.campaign.size import seeded
from tests.campaign.sync.arena import Kept, SyncArena, arena_on
from tests.campaign.sync.cupboards import Bucket
from tests.support.chat import hear, say
from tests.support.s3 import SECRET_ACCESS_KEY, S3Server


async def _objects_with(arena: SyncArena, session: Kept, needle: bytes) -> list[str]:
    """Where it is: in an object as it lies there, or in a file of any generation."""
    found = []
    async with arena.cupboard.objects() as store:
        async for each in store.list(""):
            got = await store.get(each.key)
            if needle in each.key.encode() or (got is not None and needle in got.content):
                found.append(each.key)
    async with arena.vault() as vault:
        for generation in (await vault.pointer(session.user, session.id)).generations:
            _, stored = await vault.tree(session.user, session.id, generation.number)
            tar = b"".join([piece async for piece in vault.tar(session.user, stored)])
            if needle in tar:
                found.append(f"generation {generation.number}")
    return found


def _environments(session: Kept) -> bytes:
    """Of the bridge and of all that it runs."""
    note = session.home.read_note()
    assert note is not None
    waiting, found = [note.pid, note.init_pid], b""
    while waiting:
        pid = waiting.pop()
        found += Path(f"/proc/{pid}/environ").read_bytes()
        waiting += [child.pid for child in children(pid)]
    return found


@pytest.mark.parametrize("level", ["trusted", "contained"])
async def test_secrets_reach_no_object_and_keys_no_sandbox(tmp_path: Path, s3_server: S3Server, level: str) -> None:
    canary = f"canary-{secrets.token_hex(12)}"
    seed, rng = seeded()
    cupboard = Bucket(s3_server, s3_server.make_place())
    async with arena_on(tmp_path, cupboard, seed, rng, LOCAL_LEVEL=level) as arena:
        session = await arena.create("s0", agent=None, envVars={"API_KEY": canary})
        async with arena.gateway.chat("s0") as socket:
            await hear(socket, "welcome")
            await say(socket, "message", content="/env API_KEY")
            await hear(socket, "done")
        assert canary.encode() in _environments(session), "the canary is where it should be"
        assert SECRET_ACCESS_KEY.encode() not in _environments(session)
        session.gardener.edit(10)
        await session.sync()
        session.write("later")
        await session.sleep()
        await session.post("/wake")
        await session.running()
        session.write("latest")
        await session.post("/pause")
        assert await _objects_with(arena, session, canary.encode()) == []
        assert await _objects_with(arena, session, SECRET_ACCESS_KEY.encode()) == []
        arena.acquit(f"secrets, {level}")
