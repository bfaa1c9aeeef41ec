"""How many objects an idle session keeps: the same on every machine, so that it cannot grow unseen. The bytes are in
tests/gateway/session/test_registry.py, and what the whole process takes in bench/relay.py."""

import asyncio
import contextlib
import gc
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from gateway.app import House, build_house
from gateway.auth.tokens import mint
from gateway.config.settings import Settings, resolve_secrets
from gateway.server.server import EXIT_OK, serve
from gateway.session.actor import SessionActor
from sandbox.providers.memory.fleet import MemoryFleet
from sync.machine.state import State
from tests.support.raw_client import masked, upgrade
from tests.support.waiting import until

# Each a few more than there are. What the memory fleet keeps of a sandbox counts, too; the deques are its own.
WATCHED, ALONE, DEQUES = 250, 140, 3
SESSIONS = 10

Chat = Callable[[str], Awaitable[socket.socket]]


@contextlib.asynccontextmanager
async def gateway(home: Path) -> AsyncIterator[tuple[House, Chat]]:
    """A whole one in this process, and a way to send one message to a session and to hear its answer."""
    settings = Settings(data_dir=home, port=0, create_on_attach=True, sync_debounce=0.01)
    secrets, loop = resolve_secrets(settings), asyncio.get_running_loop()
    assert secrets.jwt_secret is not None
    token = mint(secrets.jwt_secret, "ada", "ada@example.com", 3600)
    house = build_house(settings, secrets, fleet=MemoryFleet())
    ready: asyncio.Future[str] = loop.create_future()
    serving = asyncio.create_task(
        serve(house.app, settings, door=house.door, drain=house.drain, on_ready=ready.set_result)
    )
    port = int((await ready).rpartition(":")[2])

    async def chat(session: str) -> socket.socket:
        client, heard = socket.socket(), b""  # nothing more is kept of it in this process
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, upgrade(f"/ws/v2?sessionId={session}", f"Authorization: Bearer {token}"))
        while b"\r\n\r\n" not in heard:
            heard += await loop.sock_recv(client, 1 << 16)
        await loop.sock_sendall(client, masked(1, b'{"type":"message","content":"hello"}'))
        while b'"type":"done"' not in heard:
            heard += await loop.sock_recv(client, 1 << 16)
        return client

    try:
        yield house, chat
    finally:
        house.door.stop()
        assert await serving == EXIT_OK


def is_idle(actor: SessionActor) -> bool:
    view = actor.workspace.view
    return view is not None and view.state is State.IDLE and not view.dirty


def objects() -> Counter[str]:
    """By their kind, but for weak references, which keep nothing."""
    gc.collect()
    kinds = map(type, gc.get_objects())
    return Counter(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if kind.__module__ != "weakref")


async def test_an_idle_session_keeps_little_with_a_viewer_and_without_one(tmp_path: Path) -> None:
    async with gateway(tmp_path) as (house, chat), contextlib.AsyncExitStack() as stack:

        async def idle(first: int) -> list[socket.socket]:
            clients = [stack.enter_context(await chat(f"s{first + number}")) for number in range(SESSIONS)]
            await until(lambda: all(map(is_idle, house.sessions.loaded)))
            return clients

        def told() -> str:
            more = objects() - before
            each = {kind: count / SESSIONS for kind, count in more.most_common(40)}
            return f"few enough; each session has {more.total() / SESSIONS}: {each}"

        def at_most(most: int) -> bool:
            more = objects() - before
            # Fewer than one more for each: what the gateway itself does meanwhile may need a few.
            return more.total() <= most * SESSIONS and more["collections.deque"] < (DEQUES + 1) * SESSIONS

        await idle(0)  # and what the first of them brings about once
        before = objects()
        clients = await idle(SESSIONS)
        await until(lambda: at_most(WATCHED), told)
        for client in clients:
            client.close()
        await until(lambda: at_most(ALONE), told)
