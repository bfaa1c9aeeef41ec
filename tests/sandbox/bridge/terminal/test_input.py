"""What people type, who may, and what the keys of signals do."""

import sys
from pathlib import Path

from sandbox.bridge.terminal.pty import INPUT_BYTES
from sandbox.protocol.terminal import MAX_INPUT, Resized, Size
from tests.support.bridge import running_bridge
from tests.support.terminal import viewing

# A `print` that is interrupted by another one ends the program.
DEAF = """
import os, signal, time
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"INTERRUPTED\\n"))
signal.signal(signal.SIGQUIT, lambda *_: os.write(1, b"QUIT\\n"))
print("ready", flush=True)
while True:
    time.sleep(1000)
"""
# Tells what it reads, as numbers, in a terminal that turns nothing into anything.
RAW = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"ready\\r\\n")
while True:
    os.write(1, os.read(0, 65536).hex().encode() + b"\\r\\n")
"""


async def test_ctrl_c_gets_through_when_the_program_reads_nothing(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=[sys.executable, "-c", DEAF]) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.shows(b"ready")
            # First only the kernel is full, then the queue too.
            viewer.type(b"typed ahead\n" * 600)
            viewer.type(b"\x03")
            await viewer.shows(b"INTERRUPTED")
            for _ in range(3):
                viewer.type(b"x\n" * (MAX_INPUT // 2))
            await viewer.until(lambda: "input_full" in viewer.troubles)
            viewer.type(b"\x03")
            await viewer.until(lambda: viewer.output.count(b"INTERRUPTED") == 2)
            viewer.type(b"\x1c")
            await viewer.shows(b"QUIT")


async def test_ctrl_c_gets_through_a_flood(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["sh"]) as bridge:
        async with viewing(bridge) as viewer:
            viewer.type(b"yes flooding\n")
            await viewer.until(lambda: len(viewer.output) > 3_000_000)
            viewer.type(b"\x03")
            viewer.type(b"echo ov''er\n")
            await viewer.shows(b"over\r\n")


async def test_a_key_of_a_signal_is_a_key_where_the_program_wants_it_so(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=[sys.executable, "-c", RAW]) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.shows(b"ready")
            viewer.type(b"\x03")
            await viewer.shows(b"03\r\n")


async def test_what_does_not_fit_is_refused_as_a_whole_and_said_so(tmp_path: Path) -> None:
    # Raw, so nothing is thrown away; it reads when the file is there.
    script = (
        "import os, time, tty\ntty.setraw(0)\nos.write(1, b'ready')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "got = b''\n"
        "while not got.endswith(b'END'): got += os.read(0, 65536)\n"
        "os.write(1, b'GOT %d %d' % (got.count(b'a'), got.count(b'b')))\n"
        "time.sleep(1000)\n"
    )
    with running_bridge(tmp_path, ["cat"], shell=[sys.executable, "-c", script]) as bridge:
        async with viewing(bridge) as viewer:
            await viewer.shows(b"ready")
            viewer.type(b"a" * MAX_INPUT)
            viewer.type(b"b" * INPUT_BYTES)
            await viewer.until(lambda: viewer.troubles == ["input_full"])
            (bridge.workspace / "go").touch()
            viewer.type(b"END")
            await viewer.shows(b"GOT 1048576 0")


async def test_two_people_typing_are_not_mixed(tmp_path: Path) -> None:
    script = (
        "import os, time, tty\ntty.setraw(0)\nos.write(1, b'ready')\ngot = b''\n"
        "while got.count(b'.') < 40:\n got += os.read(0, 1000); time.sleep(0.001)\n"
        "words = set(got.split(b'.'))\n"
        "os.write(1, b'WORDS %d' % len(words))\ntime.sleep(1000)\n"
    )
    with running_bridge(tmp_path, ["cat"], shell=[sys.executable, "-c", script]) as bridge:
        async with viewing(bridge) as one, viewing(bridge) as other:
            await one.shows(b"ready")
            for _ in range(20):
                one.type(b"a" * 5000 + b".")
                other.type(b"b" * 5000 + b".")
            await one.shows(b"WORDS 3")  # all a, all b, and what is after the last


async def test_one_who_only_views_changes_nothing(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=[sys.executable, "-c", RAW]) as bridge:
        async with viewing(bridge, size=Size(80, 24)) as drives, viewing(bridge, role="view", size=Size(5, 5)) as views:
            await drives.shows(b"ready")
            views.type(b"V")
            views.resize(7, 7)
            views.send(9, b"both were heard")
            await views.until(lambda: views.pongs)
            drives.type(b"D")
            await views.shows(b"44\r\n")
            assert b"56" not in views.output
            assert views.sizes == [Size(80, 24)]


async def test_terminals_answer_once(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=[sys.executable, "-c", RAW]) as bridge:
        async with viewing(bridge) as first, viewing(bridge) as second:
            await first.shows(b"ready")
            second.type(b"\x1b[?62c")
            second.send(9, b"it was heard")
            await second.until(lambda: second.pongs)
            first.type(b"\x1b[?61c")
            await first.shows(b"\x1b[?61c".hex().encode())
            second.type(b"x")
            await second.shows(b"78\r\n")
            first.type(b"\x1b[?61;1c")
            first.send(9, b"it was heard")
            await first.until(lambda: first.pongs)
            second.type(b"\x1b[?62;1c")
            await second.shows(b"\x1b[?62;1c".hex().encode())
            assert b"\x1b[?62c".hex().encode() not in second.output
            assert b"\x1b[?61;1c".hex().encode() not in second.output


async def test_the_size_of_who_typed_last_reaches_the_program_and_the_others(tmp_path: Path) -> None:
    script = (
        "import os, signal, time\n"
        "def tell(*_): os.write(1, b'<%dx%d>' % tuple(os.get_terminal_size(1)))\n"
        "signal.signal(signal.SIGWINCH, tell)\ntell()\n"
        "while True: time.sleep(1000)\n"
    )
    with running_bridge(tmp_path, ["cat"], shell=[sys.executable, "-c", script]) as bridge:
        async with viewing(bridge, size=Size(100, 30)) as one, viewing(bridge, size=Size(60, 20)) as other:
            await one.shows(b"<100x30>")
            assert other.hello.size == Size(100, 30)
            one.resize(90, 25)
            await one.shows(b"<90x25>")
            await other.until(lambda: other.heard(Resized) == [Resized(90, 25)])
            other.type(b"x")
            await other.shows(b"<60x20>")
            await one.until(lambda: one.heard(Resized)[-1] == Resized(60, 20))
            async with bridge.client() as client:
                answer = await client.post("/terminals/main/size", json={"cols": 33, "rows": 11})
                assert (answer.status_code, answer.json()["cols"]) == (200, 33)
            await one.shows(b"<33x11>")


async def test_the_smallest_of_all_or_a_fixed_size_can_be_had(tmp_path: Path) -> None:
    for policy, size in (("smallest", Size(60, 25)), ("fixed", Size(80, 24))):
        home = tmp_path / policy
        home.mkdir()
        with running_bridge(home, ["cat"], shell=["sh"], sizes=policy) as bridge:
            async with viewing(bridge, size=Size(100, 25)), viewing(bridge, size=Size(60, 40)) as other:
                other.type(b"stty size\n")
                await other.shows(b"%d %d\r\n" % (size.rows, size.cols))
                assert other.sizes[-1] == size
