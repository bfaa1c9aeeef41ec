"""`python -m sandbox.bridge <config fd> <listen fd>`: the program that runs inside a sandbox."""

import asyncio
import contextlib
import itertools
import logging
import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from sandbox.bridge.agent import Agent
from sandbox.bridge.config import Config, ConfigError, read_config
from sandbox.bridge.handover import HandoverSocket
from sandbox.bridge.log import JsonHandler, log
from sandbox.bridge.notes import NotesInUse, TakenNotes
from sandbox.bridge.process import guard_this_process, kill_descendants, reap_adopted
from sandbox.bridge.server import Bridge

MAX_MESSAGE = 16 << 20  # of an operation on the tree; the link has its own, smaller bound
ROOTS = ("workspace", "agent")
NOTES_SECONDS = 5.0


def make_roots(kept: Path) -> None:
    """Both roots are there, as directories that can be used, whatever a program inside has done to them; what else
    lies in their place is moved aside. A restore that was cut short is finished first."""
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept.chmod(0o700)
    if any(name not in ROOTS and not name.startswith(".aside-") for name in os.listdir(kept)):
        from sandbox.tree.staging import recover_swap  # rarely needed, and slow to load

        recover_swap(kept)
    for root in ROOTS:
        path = kept / root
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(path.lstat().st_mode):
                names = (f".aside-{root}-{number}" for number in itertools.count(1))
                path.rename(kept / next(name for name in names if not os.path.lexists(kept / name)))
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(path.stat().st_mode & 0o777 | 0o700)


async def take_notes(state: Path) -> TakenNotes:
    """The notes, once the bridge before this one has let go of them. One that was killed has them until the last of its
    threads is gone, and the last child that it was about to start. Raises NotesInUse if that takes long."""
    loop = asyncio.get_running_loop()
    asked_at = waiting_since = loop.time()
    while True:
        try:
            return TakenNotes(state)
        except NotesInUse:
            if asked_at > waiting_since + NOTES_SECONDS:
                raise
            if asked_at == waiting_since:
                log("bridge.waiting", reason="the notes of the one before it are in use")
        await asyncio.sleep(0.02)
        asked_at = loop.time()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the bridge has its own: the agent goes first


async def run(config: Config, listener: socket.socket) -> None:
    """Serve until SIGTERM, or until no gateway has come for `orphan_seconds`; then end the agent, then everything."""
    loop = asyncio.get_running_loop()
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    notes = await take_notes(config.state)  # first: from here on no other bridge is at the roots
    make_roots(config.kept)
    agent = Agent(config, notes)
    bridge = Bridge(config, agent)
    server = _Server(
        uvicorn.Config(
            bridge.app(),
            loop="none",
            http="httptools",
            ws=HandoverSocket,
            ws_max_size=MAX_MESSAGE,
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    ending = asyncio.Event()
    orphaned: asyncio.TimerHandle | None = None

    def watch_for_orphanage() -> None:
        nonlocal orphaned
        if orphaned is not None:
            orphaned.cancel()
        orphaned = loop.call_later(config.orphan_seconds, end_orphan)

    def end_orphan() -> None:
        if not bridge.busy:
            log("bridge.orphaned", after_seconds=config.orphan_seconds)
            ending.set()

    bridge.on_idle = watch_for_orphanage
    watch_for_orphanage()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    loop.add_signal_handler(signal.SIGCHLD, reap_adopted)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="bridge.serve")
    log("bridge.started", session=config.session_id, incarnation=config.incarnation, taken=notes.taken)
    waiting = asyncio.create_task(ending.wait(), name="bridge.ending")
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await bridge.end_programs()
    kill_descendants()
    server.should_exit = True
    await serving
    bridge.close()
    notes.close()
    log("bridge.ended")


def main() -> int:
    logging.basicConfig(level=logging.WARNING, handlers=[JsonHandler()])
    guard_this_process()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        os.chdir("/")  # nothing of the bridge's may lie in a root: roots come and go
        config = read_config(int(sys.argv[1]))
        listener = socket.socket(fileno=int(sys.argv[2]))
        listener.setblocking(False)
        asyncio.run(run(config, listener))
    except (IndexError, ValueError):
        log("bridge.failed", reason="usage: python -m sandbox.bridge <config fd> <listen fd>")
        return 2
    except (ConfigError, NotesInUse, OSError) as exc:
        log("bridge.failed", reason=f"{type(exc).__name__}: {exc}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
