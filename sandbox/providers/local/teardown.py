"""Ends a sandbox, all of it.

Contained: the kernel ends every process of a pid namespace when its first process is killed. Trusted: the bridge ends
its children, also those that left its group. If the bridge itself was killed, the rest is found by its ancestry and
by the marker in its environment. A trusted program that wipes its environment and leaves its parent, while the bridge
is being killed, can stay: trusted means trusted.
"""

import asyncio
import signal

from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.cgroups import groups
from sandbox.providers.cgroups.groups import Group
from sandbox.providers.local import processes
from sandbox.providers.local.layout import BridgeNote, SandboxHome
from sandbox.providers.local.processes import Process

_ROUNDS = 20
_KILL_SECONDS = 5.0


def first_inside(bridge: BridgeNote) -> Process:
    return Process(bridge.init_pid, bridge.init_started)


def runs(bridge: BridgeNote) -> bool:
    """Whether the noted bridge runs now. A note of an earlier boot names nobody."""
    return bridge.boot == processes.boot_id() and first_inside(bridge).alive


def kill(home: SandboxHome) -> bool:
    """SIGKILL the bridge, and leave the rest of its sandbox as it is. False if none runs."""
    bridge = home.read_note()
    if bridge is None or not runs(bridge):
        return False
    for process in _bridge_itself(bridge):
        process.signal(signal.SIGKILL)
    return True


async def end(home: SandboxHome, *, patience: float, thorough: bool = False) -> None:
    """End every process of this sandbox; it has `patience` seconds to do so in order. Raises SandboxFailed if some
    process cannot be killed. No error if nothing runs.

    A bridge is noted before it does anything, so without a note nothing is searched, unless `thorough`.
    """
    bridge = home.read_note()
    if bridge is None and not home.note.exists() and not thorough:
        return
    known: list[Process] = []
    if bridge is not None and bridge.boot == processes.boot_id():
        known = await asyncio.to_thread(_family, bridge)
        if patience > 0 and first_inside(bridge).alive:
            for process in _bridge_itself(bridge):
                process.signal(signal.SIGTERM)
            await first_inside(bridge).ended(patience)
    look_everywhere = thorough or bridge is None or bridge.level != "contained"
    for _ in range(_ROUNDS):
        left = await asyncio.to_thread(_left, known, home.marker if look_everywhere else None)
        if not left:
            break
        for process in left:
            process.signal(signal.SIGKILL)
        for process in left:
            await process.ended(_KILL_SECONDS)
    else:
        raise SandboxFailed(f"processes of {home.session_id} do not end: {', '.join(str(p.pid) for p in left)}")
    await remove_group(bridge)
    home.drop_note()


async def remove_group(bridge: BridgeNote | None) -> None:
    """A group that cannot be removed now is found when the fleet opens."""
    if bridge is not None and (group := Group.noted(bridge.group)) is not None:
        await asyncio.to_thread(groups.end, group)


def _bridge_itself(bridge: BridgeNote) -> list[Process]:
    if bridge.level == "trusted":
        return [first_inside(bridge)]
    return processes.children(bridge.init_pid)  # the first inside only reaps


def _family(bridge: BridgeNote) -> list[Process]:
    # The first one inside is the parent of all: once it is gone, nothing new can start beneath it.
    family = [first_inside(bridge), Process(bridge.pid, bridge.started)]
    if bridge.level == "trusted" and first_inside(bridge).alive:
        family += processes.descendants(bridge.pid)
    return family


def _left(known: list[Process], marker: str | None) -> list[Process]:
    marked = processes.marked(marker) if marker is not None else []
    return [process for process in dict.fromkeys(known + marked) if process.alive]
