"""Several fleets as one: each session's sandbox is where its spec says, and nobody speaks for a provider that is not
here."""

from pathlib import Path

import pytest

from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Command, SandboxFailed, SandboxUnavailable
from sandbox.ports.tree import TreeFailed
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.memory.fleet import MemoryFleet
from sandbox.providers.several import Fleets
from tests.contract.sandbox import spec
from tests.support.bridge import Owner


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


async def test_a_provider_that_is_gone_has_nothing_that_runs_and_nothing_to_remove() -> None:
    fleets = Fleets(MemoryFleet(), gone=("elsewhere",))
    sandbox = fleets.sandbox("s1", "elsewhere")
    assert (await sandbox.runs(), await sandbox.kill(), await sandbox.logs()) == (False, False, b"")
    await sandbox.stop()
    await sandbox.destroy()
    with pytest.raises(LinkRefused, match="'elsewhere' is gone"):
        await sandbox.connect(Owner(), None)
    with pytest.raises(LinkRefused):
        await sandbox.exec(Command(("true",)))
    with pytest.raises(TreeFailed) as failed:
        await sandbox.files(b"workspace", b"")
    assert failed.value.code == "absent"
    with pytest.raises(SandboxFailed, match="which is gone: branch"):
        await fleets.start(spec("s1", provider="elsewhere"))
    with pytest.raises(SandboxUnavailable):
        await fleets.sandbox("s1", "another").runs()


def test_two_of_one_name_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="same name"):
        Fleets(MemoryFleet(), MemoryFleet())
