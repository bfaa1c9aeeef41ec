"""How a bridge runs: on which event loop, and not at all while there is nothing to do."""

import asyncio
from pathlib import Path

from tests.support.bridge import ROOT, Owner, running_bridge
from tests.support.waiting import until


async def answered(home: Path, code: Path) -> str:
    """Have a bridge pass a line to its agent and back; return what it wrote into its log."""
    with running_bridge(home, ["cat"], code=code) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, b"a line")
        await until(lambda: owner.received)
        assert owner.lines() == [b"a line"]
        async with bridge.client() as http:
            assert (await http.post("/exec", json={"command": "echo $((6*7))"})).json()["stdout"] == "42\n"
        bridge.terminate()
        return bridge.log


async def test_a_bridge_runs_on_uvloop(tmp_path: Path) -> None:
    assert '"loop": "uvloop"' in await answered(tmp_path, ROOT)


async def test_a_bridge_without_uvloop_runs_on_the_standard_loop(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "sandbox").symlink_to(ROOT / "sandbox")
    (code / "uvloop.py").write_text("raise ImportError('not for this machine')\n")
    assert '"loop": "asyncio"' in await answered(tmp_path, code)


async def test_a_bridge_at_rest_is_not_woken(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ["cat"]) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, b"a line")
        await until(lambda: owner.received and owner.changes)
        assert bridge.process is not None
        schedstat = Path(f"/proc/{bridge.process.pid}/schedstat")
        before = int(schedstat.read_text().split()[2])
        await asyncio.sleep(2)  # a hint that files changed may fall into it
        assert int(schedstat.read_text().split()[2]) - before < 10
