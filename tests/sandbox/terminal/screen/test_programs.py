"""The screen model on what real programs write to a real PTY, at any moment of it, judged by xterm.js."""

import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.terminal.screen.screen import Screen
from tests.sandbox.terminal.screen.xterm import Xterm

COLS, ROWS, SCROLLBACK = 80, 24, 100
PATIENCE_SECONDS = 60

ON_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
PROGRESS = """
import sys, time
for n in range(101):
    sys.stdout.write(f"\\r\\x1b[32m{'█' * (n // 4):<25}\\x1b[0m {n}%\\x1b[K")
    sys.stdout.flush()
print("\\ndone ✓ 世界")
"""

# What is run, and what is typed once something has been written.
PROGRAMS: dict[str, tuple[list[str], list[tuple[bytes, bytes]]]] = {
    "vim": (
        ["vim", "-u", "NONE", "-N", "FILE"],
        [
            (b"\x1b[?1049h", b"ihello \xe4\xb8\x96\xe7\x95\x8c\x1b"),
            (b"hello", b":set number\r"),
            (b"12 ", b"5ddGp:q!\r"),
        ],
    ),
    "less": (["less", "FILE"], [(b"\x1b[?1049h", b" "), (b"line 40", b"/77\r"), (b"line 99", b"gq")]),
    "top": (["top", "-n", "1"], []),
    "ls": (["ls", "--color=always", "-la", "/usr/bin"], []),
    "a progress bar": ([sys.executable, "-c", PROGRESS], []),
}


def record(command: list[str], typed: list[tuple[bytes, bytes]]) -> bytes:
    """All that a program writes until it ends."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLS, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": "/"}
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    written, seen = bytearray(), 0
    waiting = list(typed)
    try:
        while select.select([ours], [], [], PATIENCE_SECONDS)[0]:
            try:
                written += os.read(ours, 65536)
            except OSError:  # the last one closed its end
                break
            if waiting and waiting[0][0] in written[seen:]:
                seen = len(written)
                os.write(ours, waiting.pop(0)[1])
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    assert not waiting, f"never seen: {waiting[0][0]!r} in {bytes(written)!r}"
    return bytes(written)


@pytest.fixture(scope="module")
def xterm() -> Iterator[Xterm]:
    with Xterm() as judge:
        yield judge


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_real_program_shows_comes_back_at_any_moment(name: str, xterm: Xterm, tmp_path: Path) -> None:
    command, typed = PROGRAMS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: deploy/test-packages.sh names its package")
    file = tmp_path / "file"
    file.write_text("".join(f"line {n} of the text, \tand some more\n" for n in range(100)))
    written = record([str(file) if word == "FILE" else word for word in command], typed)
    rng = random.Random(5)
    screen, at = Screen(COLS, ROWS, scrollback=SCROLLBACK), 0
    for end in [*sorted(rng.sample(range(1, len(written)), 12)), len(written)]:
        while at < end:
            step = min(rng.randint(1, 4000), end - at)
            screen.feed(written[at : at + step])
            at += step
        rest = written[end : end + 500]
        found = xterm.tells_apart(screen, written[:end], rest, b"\x1b[?1049l", scrollback=SCROLLBACK)
        assert found == [], f"after {end} of {len(written)} bytes"
