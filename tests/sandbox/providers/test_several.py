"""Several fleets as one: each session's sandbox is where its spec says, and nobody speaks for a provider that is not
here."""

from pathlib import Path

import pytest

from sandbox.ports.fleet import Fleet
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.terminal import Open
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.memory.fleet import MemoryFleet
from sandbox.providers.several import Fleets
from tests.contract.sandbox import COMMAND, spec
from tests.support.bridge import Owner
from tests.support.terminal_watcher import Watcher


class Other(MemoryFleet):
    name = "other"
    opened = 0

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.opened -= 1


async def test_a_sandbox_runs_at_the_provider_its_spec_names() -> None:
    first, other = MemoryFleet(), Other()
    fleets = Fleets(first, other)
    assert (fleets.name, fleets.level, list(fleets)) == ("memory", "trusted", [first, other])
    await fleets.start(spec("s1"))
    await fleets.start(spec("s2", provider="other"))
    await fleets.start(spec("s3", provider="memory"))
    assert (sorted(first.sandboxes), sorted(other.sandboxes)) == (["s1", "s3"], ["s2"])
    assert sorted(await fleets.running()) == ["s1", "s2", "s3"]
    assert await fleets.sandbox("s2", "other").runs()
    assert not await fleets.sandbox("s2").runs(), "it is not at the first"


async def test_all_are_opened_or_none_is(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    first = Other()
    with pytest.raises(SandboxFailed):
        await Fleets(first, LocalFleet(tmp_path)).open()
    assert first.opened == 0
    fleets = Fleets(first)
    await fleets.open()
    assert first.opened == 1
    await fleets.close()
    assert first.opened == 0


def test_two_of_one_name_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="same name"):
        Fleets(MemoryFleet(), MemoryFleet())


async def test_of_a_provider_that_is_not_here_nothing_is_known() -> None:
    fleets: Fleet = Fleets(MemoryFleet())
    elsewhere = spec("s1", provider="elsewhere")
    assert isinstance(fleets, Fleets)
    sandbox = fleets.sandbox("s1", "elsewhere")
    assert (sandbox.session_id, sandbox.provider, sandbox.level) == ("s1", "elsewhere", "unknown")
    for ask in (sandbox.runs, sandbox.stop, sandbox.kill, sandbox.destroy, sandbox.logs):
        with pytest.raises(SandboxUnavailable, match="'elsewhere', which this gateway does not have"):
            await ask()
    with pytest.raises(SandboxUnavailable):
        await sandbox.connect(Owner(), None)
    with pytest.raises(SandboxUnavailable):
        await fleets.start(elsewhere)
    with pytest.raises(SandboxUnavailable):
        fleets.check(elsewhere)
    with pytest.raises(LinkRefused):
        await sandbox.exec(COMMAND)
    with pytest.raises(TreeFailed) as failed:
        await sandbox.tree().release()
    assert failed.value.code == "silent", "not `absent`: that would say that it has ended"
    with pytest.raises(TreeFailed):
        await sandbox.files(b"workspace", b"")
    with pytest.raises(LinkRefused):
        await sandbox.terminals().list()
    with pytest.raises(LinkRefused):
        await sandbox.terminals().open("main", Open.of(None, "drive", None), Watcher(), lambda frames: None)
