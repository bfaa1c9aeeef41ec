"""`python -m sandbox.bridge <config fd> <listen fd>`: the program that runs inside a sandbox.

With options instead of descriptors, a person starts it by hand: sandbox/bridge/standalone.py.
"""

import asyncio
import logging
import os
import resource
import socket
import sys
from pathlib import Path

from sandbox.bridge import serving
from sandbox.bridge.agent.agent import Agent
from sandbox.bridge.agent.taken import NotesInUse, TakenNotes
from sandbox.bridge.base.config import Config, ConfigError, read_config
from sandbox.bridge.egress import EgressListener
from sandbox.bridge.handed import HandedIn
from sandbox.bridge.reception import Reception
from sandbox.bridge.server import Bridge
from sandbox.system.child import guard_this_process
from sandbox.system.log import JsonHandler, log
from sandbox.tree.kept_roots import make_roots

NOTES_SECONDS = 5.0
USAGE = "usage: python -m sandbox.bridge <config fd> <listen fd>, or by hand: python -m sandbox.bridge --help"


async def take_notes(state: Path, boot_id: str = "") -> TakenNotes:
    """The notes, once the bridge before this one has let go of them. A killed bridge holds them until its last thread
    is gone, and the last child that it was about to start. Raises NotesInUse if that takes long."""
    loop = asyncio.get_running_loop()
    asked_at = waiting_since = loop.time()
    while True:
        try:
            return TakenNotes(state, boot_id=boot_id)
        except NotesInUse:
            if asked_at > waiting_since + NOTES_SECONDS:
                raise
            if asked_at == waiting_since:
                log("bridge.waiting", reason="the notes of the one before it are in use")
        await asyncio.sleep(0.02)
        asked_at = loop.time()


async def run(config: Config, listener: socket.socket | HandedIn) -> None:
    """Serve until SIGTERM, or until no gateway has come for `orphan_seconds`. Then end the agent, then everything
    else."""
    loop = asyncio.get_running_loop()
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    notes = await take_notes(config.state, config.boot_id)  # first: from here on no other bridge works on the roots
    make_roots(config.kept)
    agent = Agent(config, notes)
    bridge = Bridge(config, agent)
    ending = serving.end_on_signals()
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
    loop_name = type(loop).__module__.partition(".")[0]
    log(
        "bridge.started",
        session=config.session_id,
        incarnation=config.incarnation,
        taken=notes.taken,
        loop=loop_name,
    )
    outlet = EgressListener(config.egress)
    reception = Reception(bridge, config.token, outlet)
    await serving.serve_until(ending, reception.caller, listener, bridge.end_programs, reception.close)
    outlet.close()
    bridge.close()
    notes.close()
    log("bridge.ended")


def main() -> int:
    if any(word.startswith("-") for word in sys.argv[1:2]):
        from sandbox.bridge import standalone  # a sandbox never needs it

        return standalone.main(sys.argv[1:])
    logging.basicConfig(level=logging.WARNING, handlers=[JsonHandler()])
    guard_this_process()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        os.chdir("/")  # no directory of the bridge may be in a root: roots come and go
        config = read_config(int(sys.argv[1]))
        number, _, door = sys.argv[2].partition(":")
        listener = socket.socket(fileno=int(number))
        listener.setblocking(False)
        serving.run(run(config, HandedIn(listener, door, config.token) if door else listener))
    except (IndexError, ValueError):
        log("bridge.failed", reason=USAGE)
        return 2
    except (ConfigError, NotesInUse, OSError) as exc:
        log("bridge.failed", reason=f"{type(exc).__name__}: {exc}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
