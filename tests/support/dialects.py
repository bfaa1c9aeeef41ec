"""Reads a terminal dialect as its client does; and makes traffic for it."""

from typing import Any

import orjson

from sandbox.protocol.terminal import Exit, Greeting, Reset, Size, TerminalTrouble
from sandbox.protocol.websocket_frames import BINARY, TEXT, FrameReader

HELLO = Greeting.of("e1", 700, Size(80, 24), 0, False, "vim")
RESET = Reset.of("e2", 900, Size(100, 30))
TROUBLE = TerminalTrouble("start_failed", "no such program")
ENDED = Exit(3, None)


def read_frames(wire: bytes) -> list[tuple[int, bytes]]:
    """Every frame of `wire`, which consists of whole unfragmented ones."""
    reader = FrameReader(1 << 22, 1, masked=False)
    reader.feed(wire)
    frames = []
    while (found := reader.read()) is not None:
        frames.append(found)
    assert sum(len(payload) for _, payload in frames) <= len(wire)
    assert wire == b"" or frames, "something that is no frame"
    return frames


def control(wire: bytes) -> list[Any]:
    """Text frames as JSON; binary ones as bytes."""
    return [orjson.loads(payload) if opcode == TEXT else payload for opcode, payload in read_frames(wire)]


def texts(wire: bytes) -> list[str]:
    frames = read_frames(wire)
    assert all(opcode == TEXT for opcode, _ in frames)
    return [payload.decode() for _, payload in frames]


def binaries(wire: bytes) -> list[bytes]:
    frames = read_frames(wire)
    assert all(opcode == BINARY for opcode, _ in frames)
    return [payload for _, payload in frames]
