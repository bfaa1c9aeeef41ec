"""What the dialer connects to, and how many names one session looks up."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from gateway.egress import dialer
from gateway.egress.dialer import LOOKUPS_OF_ONE, Dialer, is_own
from gateway.egress.head import NotServed

PUBLIC = "93.184.216.34"
REACHES = f"""
import asyncio
from gateway.egress.addresses import parse_inner
from gateway.egress.dialer import Dialer, NotPublic

async def main():
    async def serve(reader, writer):
        writer.close()
    async with await asyncio.start_server(serve, "0.0.0.0", 8443):
        dialer = Dialer()
        try:
            (await dialer.dial("ann", "{PUBLIC}", 8443)).close()
            print("reached")
        except NotPublic:
            print("refused")
        dialer.inner = parse_inner(["{PUBLIC}"])
        (await dialer.dial("ann", "{PUBLIC}", 8443)).close()
        print("allowed")

asyncio.run(main())
"""


def test_a_public_address_of_the_host_itself_is_refused() -> None:
    """What listens there may be closed to the world by a firewall, and that lets the host's own packets through."""
    steps = f'ip link set lo up && ip addr add {PUBLIC}/32 dev lo && exec "$0" -c "$1"'
    words = ["unshare", "-Urn", "sh", "-c", steps, sys.executable, REACHES]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr) == (["refused", "allowed"], "")


def test_the_hosts_own_addresses_are_known() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.7")
    assert not is_own("2001:db8::7")


async def test_a_name_that_is_still_looked_up_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who asked have given up; the thread goes on, and other sessions need theirs."""
    asked, go_on = [], threading.Event()

    def slow(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        go_on.wait()
        return []

    monkeypatch.setattr("socket.getaddrinfo", slow)
    monkeypatch.setattr(dialer, "DIAL_SECONDS", 0.2)
    ours = Dialer()
    try:
        for _ in range(3):
            asks = [ours.dial("ann", "slow.example", 443) for _ in range(LOOKUPS_OF_ONE)]
            ends = await asyncio.gather(*asks, return_exceptions=True)
            assert {type(each) for each in ends} == {NotServed}
        assert len(asked) == LOOKUPS_OF_ONE
    finally:
        go_on.set()
