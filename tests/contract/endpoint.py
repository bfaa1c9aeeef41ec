"""What every Endpoint promises: all that a gateway asks of a bridge goes through it. An adapter's test class gives
`endpoint`, of a bridge that runs, `stranger`, the same with a token that is not the bridge's, and `absent`, where
nobody listens."""

import asyncio

import pytest

from sandbox.client import agent_link
from sandbox.client.bridge_requests import CallFailed, call
from sandbox.client.endpoint import Endpoint, Find
from sandbox.client.terminals import BridgeTerminals
from sandbox.client.tree import BridgeTree
from sandbox.ports.link import LinkRefused
from sandbox.ports.terminals import TerminalRefused, TerminalWish
from sandbox.ports.tree import LiveFile, LiveListing, TreeFailed
from sandbox.protocol.tree import ScanAsk, ScanDone
from tests.support.bridge import Owner
from tests.support.terminal_watcher import watch
from tests.support.waiting import until


def found(endpoint: Endpoint) -> Find:
    async def find() -> Endpoint:
        return endpoint

    return find


class _Plain(asyncio.Protocol):
    made = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = True
        transport.close()


class EndpointContract:
    async def test_it_has_a_token_and_whole_parts_of_an_address(self, endpoint: Endpoint) -> None:
        assert "Bearer" in endpoint.headers["Authorization"]
        assert not endpoint.prefix.endswith("/")
        assert "/" not in endpoint.host

    async def test_what_is_dialled_is_the_protocol_that_was_made(self, endpoint: Endpoint) -> None:
        made = await endpoint.dial(_Plain)
        assert made.made

    async def test_the_agents_link_goes_through_it(self, endpoint: Endpoint) -> None:
        owner = Owner()
        link = await agent_link.connect(endpoint, owner, None)
        try:
            await until(lambda: owner.hellos)
            if not owner.hellos[0].alive:
                link.start(b"start")
            await until(lambda: owner.epochs)
            link.inject(b"x" * 300_000)
            await until(lambda: b"x" * 300_000 in owner.lines())
        finally:
            link.close()

    async def test_the_tree_and_its_files_go_through_it(self, endpoint: Endpoint) -> None:
        wrote = {"command": "printf '%01000000d' 7 > big"}
        assert (await call(endpoint, "POST", "/exec", body=wrote, timeout=60))["exitCode"] == 0
        tree = BridgeTree(found(endpoint))
        await tree.greet()
        file = await tree.files(b"workspace", b"big", start=10)
        assert isinstance(file, LiveFile)
        assert b"".join([piece async for piece in file.content]) == b"0" * 999_989 + b"7"
        assert isinstance(await tree.files(b"workspace", b""), LiveListing)
        async with tree.scan(ScanAsk(None, ())) as scan:
            while not isinstance(batch := await scan.next(), ScanDone):
                async for _ in scan.fetch(range(len(batch.offers))):
                    pass

    async def test_terminals_go_through_it(self, endpoint: Endpoint) -> None:
        terminals = BridgeTerminals(found(endpoint))
        assert await terminals.create("cat", TerminalWish(command=("cat",)))
        watcher = await watch(terminals, "cat")
        watcher.type(b"through\r")
        await watcher.shows(b"through")
        assert watcher.link is not None
        watcher.link.close()
        assert [each["name"] for each in await terminals.list()] == ["cat"]
        await terminals.end("cat")
        with pytest.raises(TerminalRefused):
            await terminals.end("cat")

    async def test_a_token_of_somebody_else_opens_nothing(self, stranger: Endpoint) -> None:
        with pytest.raises(LinkRefused):
            await agent_link.connect(stranger, Owner(), None)
        with pytest.raises(TreeFailed):
            await BridgeTree(found(stranger)).release()
        with pytest.raises(TreeFailed):
            await BridgeTree(found(stranger)).files(b"workspace", b"")
        with pytest.raises((LinkRefused, TerminalRefused)):
            await BridgeTerminals(found(stranger)).list()
        with pytest.raises(CallFailed):
            await call(stranger, "POST", "/exec", body={"argv": ["true"]}, timeout=60)

    async def test_nobody_there_is_told_in_the_words_of_each_client(self, absent: Endpoint) -> None:
        with pytest.raises(OSError):  # noqa: PT011 - which one is the network's to say
            await absent.dial(_Plain)
        with pytest.raises(LinkRefused, match="cannot be reached"):
            await agent_link.connect(absent, Owner(), None)
        with pytest.raises(TreeFailed, match="cannot be reached"):
            await BridgeTree(found(absent)).release()
        with pytest.raises(TreeFailed):
            await BridgeTree(found(absent)).files(b"workspace", b"")
        with pytest.raises(LinkRefused, match="did not answer"):
            await BridgeTerminals(found(absent)).list()
        with pytest.raises(CallFailed, match="no connection"):
            await call(absent, "GET", "/health", timeout=60)
