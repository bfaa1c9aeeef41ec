"""The door: one container's first program gets what it is started with, and nobody else gets anything."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

from sandbox.providers.container import doorway
from sandbox.providers.container.doorway import Caller
from tests.support.waiting import held_below

KNOCK = """
import os, socket, sys
if sys.argv[2] != "0":
    os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    said, got, _, _ = socket.recv_fds(door, 1, 8)
    print(len(got), os.read(got[0], 100).decode() if got else "", end="")
"""


def knock(door: Path, uid: int) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", KNOCK, str(door), str(uid)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


async def test_the_first_program_gets_the_descriptors_and_the_door_is_gone(open_path: Path) -> None:
    config, config_end = os.pipe()
    with doorway.opened(open_path / "door") as door:
        visitor = knock(open_path / "door" / "door", 0)
        caller = await door.hand_over([config], 0, lambda pid: _is(pid, visitor.pid))
    os.close(config)
    os.write(config_end, b"secret")
    os.close(config_end)
    told, _ = await asyncio.to_thread(visitor.communicate)
    assert told == "1 secret"
    assert caller == Caller(visitor.pid, 0)
    assert os.listdir(open_path / "door") == []


async def test_whoever_else_knocks_gets_nothing(open_path: Path) -> None:
    config, config_end = os.pipe()
    with doorway.opened(open_path / "door") as door:
        path = open_path / "door" / "door"
        another_user, another_process = knock(path, 65534), knock(path, 0)
        handing = asyncio.create_task(door.hand_over([config], 0, lambda pid: _is(pid, 1)))
        for visitor in (another_user, another_process):
            told, _ = await asyncio.to_thread(visitor.communicate)
            assert told == "0 "
        assert not handing.done()
        handing.cancel()
        await asyncio.wait({handing})
    os.close(config)
    os.close(config_end)


RUDE = """
import contextlib, os, socket, sys
file = os.open(sys.argv[3], os.O_RDONLY)
if sys.argv[2] != "0":
    os.setuid(int(sys.argv[2]))
pipe = os.pipe()
for number in range(200):
    with socket.socket(socket.AF_UNIX) as door, socket.socket(socket.AF_UNIX) as listener:
        door.connect(sys.argv[1])
        with contextlib.suppress(ConnectionError):  # it is sent away meanwhile
            if number % 4 == 1:
                door.sendall(bytes(100_000))
            elif number % 4 == 2:
                socket.send_fds(door, [b"h"], [*pipe, file, listener.fileno()] * 16)
            elif number % 4 == 3:
                socket.send_fds(door, [b"h"], [file])
                door.shutdown(socket.SHUT_WR)
"""


async def test_what_a_wrong_visitor_sends_is_not_taken_and_keeps_nobody_else_out(open_path: Path) -> None:
    config, config_end = os.pipe()
    with doorway.opened(open_path / "door") as door:
        path = open_path / "door" / "door"
        sent = open_path / "sent"
        sent.touch()
        rude = [subprocess.Popen([sys.executable, "-c", RUDE, str(path), uid, str(sent)]) for uid in ("65534", "0")]
        right: list[int] = []
        handing = asyncio.create_task(door.hand_over([config], 0, lambda pid: _is(pid, *right)))
        for intruder in rude:
            assert await asyncio.to_thread(intruder.wait) == 0
        assert not handing.done()
        assert held_below(sent) == []
        visitor = knock(path, 0)
        right.append(visitor.pid)
        assert (await handing).pid == visitor.pid
    os.close(config)
    os.write(config_end, b"secret")
    os.close(config_end)
    told, _ = await asyncio.to_thread(visitor.communicate)
    assert told == "1 secret"


async def test_the_containers_user_can_reach_it_whatever_the_umask_and_nobody_can_change_it(open_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        with doorway.opened(open_path / "door"):
            assert stat.S_IMODE((open_path / "door").stat().st_mode) == 0o755
            assert stat.S_IMODE((open_path / "door" / "door").stat().st_mode) == 0o666
            with doorway.opened(open_path / "door"):  # of a gateway that was killed
                pass
    finally:
        os.umask(umask)
    with socket.socket(socket.AF_UNIX) as late:
        assert late.connect_ex(str(open_path / "door" / "door")) != 0


async def _is(pid: int, *wanted: int) -> bool:
    return pid in wanted
