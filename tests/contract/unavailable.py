"""What a Sandbox says whose provider does not answer: that nothing is known. An adapter's test class gives `sandbox`, a
handle of such a one."""

import pytest

from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import Sandbox, SandboxUnavailable
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.terminal import Open
from tests.contract.sandbox import COMMAND
from tests.support.bridge import Owner
from tests.support.terminal_watcher import Watcher


class UnavailableContract:
    async def test_its_life_is_not_known_and_not_changed(self, sandbox: Sandbox) -> None:
        for ask in (sandbox.runs, sandbox.stop, sandbox.kill, sandbox.destroy, sandbox.logs):
            with pytest.raises(SandboxUnavailable):
                await ask()
        with pytest.raises(SandboxUnavailable):
            await sandbox.connect(Owner(), None)
        with pytest.raises(SandboxUnavailable):
            await sandbox.exec(COMMAND)

    async def test_its_tree_is_silent_and_not_absent(self, sandbox: Sandbox) -> None:
        tree = sandbox.tree()
        for attempt in (tree.greet(), tree.survey(()), tree.quiet(), tree.release(), sandbox.files(b"workspace", b"")):
            with pytest.raises(TreeFailed) as failed:
                await attempt
            assert failed.value.code == "silent", "`absent` would say that it has ended"

    async def test_its_terminals_cannot_be_reached(self, sandbox: Sandbox) -> None:
        with pytest.raises(LinkRefused):
            await sandbox.terminals().list()
        with pytest.raises(LinkRefused):
            await sandbox.terminals().open("main", Open.of(None, "drive", None), Watcher(), lambda frames: None)
