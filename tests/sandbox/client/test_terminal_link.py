"""A viewer, a real bridge, a real program on a real PTY."""

from pathlib import Path

from sandbox.protocol.terminal import Size
from tests.support.bridge import running_bridge
from tests.support.terminal import viewing


async def test_what_is_typed_reaches_the_program_and_what_it_writes_comes_back(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"], shell=["sh"]) as bridge:
        async with viewing(bridge, size=Size(100, 30)) as viewer:
            viewer.type(b"stty size; echo $TERM-$HOLDFAST_TERMINAL; pwd\n")
            await viewer.shows(b"30 100\r\n")
            await viewer.shows(b"xterm-256color-main\r\n")
            await viewer.shows(str(bridge.workspace).encode())
            position = viewer.position
            viewer.type(b"echo mo''re\n")
            await viewer.shows(b"more\r\n")
        async with viewing(bridge, after=position) as again:
            await again.shows(b"more\r\n")
            assert again.hello.offset == position.offset
            assert 0 < again.hello.replayed <= len(again.output) + len(b"# ")  # the prompt may come later
            again.type(b"exit 3\n")
            exit = await again.until(lambda: again.exit)
            assert (exit.code, exit.signal) == (3, None)
