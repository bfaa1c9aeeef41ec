"""The proxy as a process of its own: it outlives its gateway, and is started again when it dies itself."""

import os
import signal
from pathlib import Path

import msgspec

from gateway.egress import process
from gateway.egress.policy import Network, Policy
from tests.gateway.egress.proxies import HERE, Proxied, connect, echo, end_proxy, host, plain, proxied, say, tunnel
from tests.support.waiting import until


async def test_sessions_reach_what_they_may(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, host(echo) as far, host(plain) as web:
        allowed = proxy.session("ann", {"allow": [f"{HERE}:{far}", f"{HERE}:{web}"]})
        denied = proxy.session("bob", "none")
        reader, writer = await tunnel(allowed, f"{HERE}:{far}")
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        said = await say(allowed, f"GET http://{HERE}:{web}/a?b HTTP/1.1\r\nHost: other\r\nX: 1\r\n\r\n".encode())
        assert f"GET /a?b HTTP/1.1\r\nHost: {HERE}:{web}\r\nX: 1\r\nConnection: close\r\n\r\n".encode() in said
        said = await say(denied, f"CONNECT {HERE}:{far} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert said.startswith(b"HTTP/1.1 403 Forbidden")
        assert b"network: none" in said
        assert b"HOLDFAST_NETWORK" in said
        [told] = await until(lambda: proxy.denied)
        assert (told.session, told.host, told.port, told.entry) == ("bob", HERE, far, f"{HERE}:{far}")
        said = await say(allowed, b"GET /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 404 Not Found")


async def test_a_stream_goes_on_when_its_gateway_goes_and_another_comes(tmp_path: Path) -> None:
    async with host(echo) as far:
        first = Proxied(tmp_path)
        try:
            async with first.keeper:
                pid = await first.ready()
                port = first.session("ann", {"allow": [f"{HERE}:{far}"]})
                reader, writer = await tunnel(port, f"{HERE}:{far}")
            writer.write(b"one")
            assert await reader.readexactly(3) == b"one"
            second = Proxied(tmp_path)
            second.listeners = first.listeners
            async with second.keeper:
                assert await second.ready() == pid, "the same one is found again"
                second.session("ann", {"allow": [f"{HERE}:{far}"]})
                second.keeper.keep(["ann"])
                await until(lambda: second.given)
                writer.write(b"two")
                assert await reader.readexactly(3) == b"two"
                again, other = await tunnel(port, f"{HERE}:{far}")
                second.keeper.keep(["ann"])
                second.keeper.take_away("ann")
                assert await again.read() == b"", "its sandbox has ended, and its connections with it"
                assert await reader.read() == b""
            writer.close()
            other.close()
        finally:
            first.close()
            await end_proxy(tmp_path)


async def test_a_killed_proxy_is_started_again_and_told_everything(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, host(echo) as far:
        port = proxy.session("ann", {"allow": [f"{HERE}:{far}"]})
        reader, writer = await tunnel(port, f"{HERE}:{far}")
        pid = await proxy.ready()
        os.kill(pid, signal.SIGKILL)
        assert await reader.read() == b""
        writer.close()
        reader, writer = await tunnel(port, f"{HERE}:{far}")  # waits in the listener's backlog meanwhile
        writer.write(b"again")
        assert await reader.readexactly(5) == b"again"
        writer.close()
        assert await proxy.ready() != pid


async def test_a_proxy_of_other_code_finishes_what_it_has_and_a_new_one_takes_over(tmp_path: Path) -> None:
    async with host(echo) as far, proxied(tmp_path) as proxy:
        port = proxy.session("ann", {"allow": [f"{HERE}:{far}"]})
        reader, writer = await tunnel(port, f"{HERE}:{far}")
        old = process.noted(tmp_path)
        assert old is not None
        current, process.release = process.release, lambda: "another"
        try:
            second = Proxied(tmp_path)
            second.listeners = proxy.listeners
            await proxy.keeper.__aexit__()
            async with second.keeper:
                assert await until(lambda: second.proxy) != old.pid
                second.session("ann", {"allow": [f"{HERE}:{far}"]})
                writer.write(b"old")
                assert await reader.readexactly(3) == b"old"
                again, other = await tunnel(port, f"{HERE}:{far}")
                other.write(b"new")
                assert await again.readexactly(3) == b"new"
                assert old.runs
                writer.close()
                other.close()
                await until(lambda: not old.runs, "the old proxy's end")
        finally:
            process.release = current


async def test_a_policy_counts_from_the_next_request_on(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, host(echo) as far:
        port = proxy.session("ann", {"allow": [f"{HERE}:{far}"]})
        reader, writer = await tunnel(port, f"{HERE}:{far}")
        proxy.keeper.set_policy(Policy("ann", "user of ann", Network()))
        words = f"CONNECT {HERE}:{far} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

        await until(lambda: _denied(proxy, port, words), "the new policy")
        writer.write(b"open")
        assert await reader.readexactly(4) == b"open"
        writer.close()


async def _denied(proxy: Proxied, port: int, words: bytes) -> bool:
    asking, writer = await connect(port)
    writer.write(words)
    said = await asking.readuntil(b"\r\n\r\n")
    writer.close()
    return said.startswith(b"HTTP/1.1 403 ")


async def test_notes_go_to_the_parts_they_name(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy:
        assert proxy.keeper.note("nobody", {"a": 1}), "the proxy has no such part, and goes on"
        port = proxy.session("ann", "none", routes={"model": msgspec.Raw(b"{}")})
        said = await say(port, b"GET /model/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 404")


async def test_without_a_gateway_and_without_work_it_ends(tmp_path: Path) -> None:
    async with proxied(tmp_path, orphan_seconds=0.1):
        note = process.noted(tmp_path)
        assert note is not None
    await until(lambda: not note.runs, "the proxy's end")


async def test_a_policy_that_is_too_long_harms_no_other_session(tmp_path: Path) -> None:
    """Its user has keys of the greatest length, at many providers."""
    async with proxied(tmp_path) as proxy, host(echo) as far:
        pid = await proxy.ready()
        long = {f"provider{number}": msgspec.Raw(b'"%b"' % (b"k" * 8192)) for number in range(25)}
        proxy.session("eve", "none", routes=long)
        proxy.keeper.set_policy(Policy("eve", "user of eve", routes=long))
        ann = proxy.session("ann", {"allow": [f"{HERE}:{far}"]})
        reader, writer = await tunnel(ann, f"{HERE}:{far}")
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        os.kill(pid, signal.SIGKILL)
        await until(lambda: proxy.proxy not in (None, pid), "another proxy, which is told of both")
        assert await reader.read() == b""
        writer.close()
        reader, writer = await tunnel(ann, f"{HERE}:{far}")
        writer.close()
