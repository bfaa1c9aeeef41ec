"""The Endpoint contract, once per way to a bridge. All of them lead to the same one."""

import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.client import agent_link
from sandbox.client.endpoint import Endpoint, UnixEndpoint
from sandbox.ports.link import LinkRefused
from tests.contract.endpoint import EndpointContract
from tests.support.bridge import TOKEN, BridgeProcess, Owner, running_bridge
from tests.support.relay import RelayEndpoint, relayed


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    with running_bridge(tmp_path_factory.mktemp("bridge"), ["cat"]) as bridge:
        yield bridge


@pytest.fixture
async def ready(bridge: BridgeProcess) -> BridgeProcess:
    (await bridge.link(Owner())).close()
    return bridge


class TestUnixEndpoint(EndpointContract):
    @pytest.fixture
    def endpoint(self, ready: BridgeProcess) -> Endpoint:
        return UnixEndpoint(ready.path, TOKEN)

    @pytest.fixture
    def stranger(self, ready: BridgeProcess) -> Endpoint:
        return UnixEndpoint(ready.path, "x" * 43)

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Endpoint:
        return UnixEndpoint(str(tmp_path / "nobody"), TOKEN)

    async def test_its_token_is_not_shown(self, endpoint: Endpoint) -> None:
        assert TOKEN not in repr(endpoint)


class TestRelayEndpoint(EndpointContract):
    """The next kinds of endpoints are like this one: TLS, a prefix, headers beside the bridge's own."""

    @pytest.fixture
    async def endpoint(self, ready: BridgeProcess, tmp_path: Path) -> AsyncIterator[RelayEndpoint]:
        async with relayed(ready.path, TOKEN, tmp_path) as endpoint:
            yield endpoint

    @pytest.fixture
    def stranger(self, endpoint: RelayEndpoint) -> Endpoint:
        return replace(endpoint, token="x" * 43)

    @pytest.fixture
    def absent(self, endpoint: RelayEndpoint) -> Iterator[Endpoint]:
        with socket.socket() as unused:  # bound, and nobody listens
            unused.bind(("127.0.0.1", 0))
            yield replace(endpoint, port=unused.getsockname()[1])

    async def test_who_does_not_know_the_relays_secret_is_refused(self, endpoint: RelayEndpoint) -> None:
        with pytest.raises(LinkRefused, match="403"):
            await agent_link.connect(replace(endpoint, secret="wrong"), Owner(), None)
