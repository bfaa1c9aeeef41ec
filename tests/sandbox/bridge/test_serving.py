"""Which event loop a bridge runs on."""

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
