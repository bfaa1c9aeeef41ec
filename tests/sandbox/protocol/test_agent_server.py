"""Only loopback addresses of the sandbox can be named, and what is named is read back the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.protocol.agent_server import LONGEST, AgentServer, BadServer, read_server


@pytest.mark.parametrize(
    ("connect", "hosts", "port", "target"),
    [
        ("ws://127.0.0.1:8080", ("127.0.0.1",), 8080, "/"),
        ("ws://127.3.255.9:1/a/b?c=d", ("127.3.255.9",), 1, "/a/b?c=d"),
        ("ws://localhost:65535/", ("127.0.0.1", "::1"), 65535, "/"),
        ("ws://[::1]:80/agent", ("::1",), 80, "/agent"),
    ],
)
def test_an_address_is_read(connect: str, hosts: tuple[str, ...], port: int, target: str) -> None:
    read = read_server(connect, "/health")
    assert read == AgentServer(connect, "/health", hosts, port, target)
    assert read_server(**read.members()) == read
    assert connect.startswith(f"ws://{read.address}")


@pytest.mark.parametrize(
    "connect",
    [
        None,
        8080,
        "",
        "127.0.0.1:8080",
        "http://127.0.0.1:8080",
        "wss://127.0.0.1:8080",
        "ws://127.0.0.1",
        "ws://127.0.0.1:0",
        "ws://127.0.0.1:65536",
        "ws://127.0.0.1:080",
        "ws://127.0.0.256:80",
        "ws://127.0.0.01:80",
        "ws://0.0.0.0:80",
        "ws://10.0.0.1:80",
        "ws://[::]:80",
        "ws://example.org:80",
        "ws://localhost.example.org:80",
        "ws://me@127.0.0.1:80",
        "ws://127.0.0.1:80@example.org",
        "ws://127.0.0.1:80/a b",
        "ws://127.0.0.1:80/#a",
        "ws://127.0.0.1:80/\r\nHost: x",
        "ws://127.0.0.1:80/\n",
        "ws://127.0.0.1:80/" + "a" * LONGEST,
    ],
)
def test_any_other_address_is_refused_by_the_members_name(connect: object) -> None:
    with pytest.raises(BadServer) as refused:
        read_server(connect)
    assert refused.value.member == "connect"


@pytest.mark.parametrize("health", [None, "health", "/a b", "/a\n", "http://127.0.0.1/health", "/" + "a" * LONGEST])
def test_a_health_path_is_one(health: object) -> None:
    with pytest.raises(BadServer) as refused:
        read_server("ws://127.0.0.1:80", health)
    assert refused.value.member == "health"


@given(
    hosts=st.from_regex(r"(127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|localhost|[a-z0-9.:\[\]]{1,12})", fullmatch=True),
    port=st.integers(0, 99999),
    path=st.text(max_size=20).map("/".__add__),
)
def test_what_is_read_goes_to_a_loopback_address_and_stays_in_one_line(hosts: str, port: int, path: str) -> None:
    try:
        read = read_server(f"ws://{hosts}:{port}{path}")
    except BadServer:
        return
    assert all(host == "::1" or host.startswith("127.") for host in read.hosts)
    assert read.port == port
    assert read.target.startswith("/")
    assert read.target.isascii()
    assert not any(each.isspace() for each in read.target)
    assert read_server(**read.members()) == read
