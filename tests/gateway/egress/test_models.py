"""The route to models: the proxy as a process, a provider's server over TLS, and keys that no sandbox has."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.agents.trial.answers import SAID
from gateway.egress.budget import Spent
from gateway.egress.meter import Tokens
from gateway.egress.model_settings import ProviderKey
from gateway.egress.prices import NANO
from tests.gateway.egress.origins import AskedOrigin, KeptKeys, Models, asking, model_origin, whole
from tests.gateway.egress.proxies import HERE, connect, host, proxied, say
from tests.support.waiting import until

MESSAGES = "/anthropic/v1/messages"
CLAUDE = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "stream": True, "messages": []}


def status(said: bytes) -> int:
    return int(said.split(b" ", 2)[1])


def error(said: bytes) -> Any:
    return json.loads(said.partition(b"\r\n\r\n")[2])["error"]


async def test_the_key_is_put_in_outside_and_what_came_is_taken_out(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        port = await (models := Models(proxy, origin)).session("ann")
        placeholders = ["x-api-key: placeholder", "Authorization: Bearer placeholder", "Cookie: a=b", "Via: x"]
        rest = ["anthropic-version: 2023-06-01", "User-Agent: agent", "Connection: x-gone", "X-Gone: 1"]
        said = await say(port, asking(f"{MESSAGES}?beta=true", CLAUDE, *placeholders, *rest))
        assert status(said) == 200
        assert SAID.encode() in said
        assert b"canary-key" not in said
        [asked] = origin.asked
        assert (asked.method, asked.target, asked.json) == ("POST", "/v1/messages?beta=true", CLAUDE)
        length = str(len(json.dumps(CLAUDE)))
        assert asked.headers == {
            "host": f"{HERE}:{origin.port}", "anthropic-version": "2023-06-01", "user-agent": "agent",
            "x-api-key": "canary-key", "accept-encoding": "identity", "content-length": length,
        }  # fmt: skip
        await until(lambda: models.told.get("ann") == Spent(1, Tokens(10, 5), 105_000))
        assert models.gateway.by_provider == {"anthropic": Spent(1, Tokens(10, 5), 105_000)}
        for _ in range(3):
            assert status(await say(port, asking(MESSAGES, CLAUDE))) == 200
        counted = await say(port, asking(f"{MESSAGES}/count_tokens", {"messages": []}))
        assert (status(counted), origin.connections) == (200, 1), "the connection is used again"
        await until(lambda: models.told["ann"].requests == 4, "what is not metered costs nothing")


async def test_a_piece_comes_back_as_soon_as_it_was_sent(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def script(asked: AskedOrigin, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"data: one\n\n", b"data: two\n\n"):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await go_on.wait()
        writer.write(b"0\r\n\r\n")
        return True

    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        port = await Models(proxy, origin).session("ann")
        origin.script = script
        reader, writer = await connect(port)
        writer.write(asking(MESSAGES, CLAUDE))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"text/event-stream" in head
        assert await reader.readexactly(16) == b"b\r\ndata: one\n\n\r\n"
        go_on.set()
        assert (await reader.read()).endswith(b"data: two\n\n\r\n0\r\n\r\n")
        writer.close()


async def test_what_does_not_pass_is_told_in_the_apis_own_form(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        keys = KeptKeys({("user of ann", "google"): ProviderKey("k")})
        port = await Models(proxy, origin, keys).session("ann")
        said = await say(port, asking(MESSAGES, CLAUDE))
        assert status(said) == 401
        assert error(said)["type"] == "authentication_error"
        assert "`holdfast credentials set anthropic`" in error(said)["message"]
        said = await say(port, asking("/openai/v1/responses", {}))
        assert (status(said), error(said)["code"]) == (401, "no_credential")
        assert b"x-should-retry: false" in said
        said = await say(port, asking("/google/v1beta/files", {}))
        assert (status(said), error(said)["status"]) == (404, "NOT_FOUND")
        assert status(await say(port, asking("/holdfast/x", {}))) == 404
        assert status(await say(port, asking("/nobody/x", {}))) == 404
        large = f"POST {MESSAGES} HTTP/1.1\r\nHost: x\r\nContent-Length: {40 << 20}\r\n\r\n".encode()
        said = await say(port, large + b"x" * 100_000)
        assert (status(said), error(said)["type"]) == (413, "request_too_large")
        assert origin.asked == []
        said = await say(port, asking("/google/v1beta/models/x:generateContent?key=placeholder", {"contents": []}))
        assert (status(said), origin.asked[0].target) == (200, "/v1beta/models/x:generateContent")
        assert origin.asked[0].headers["x-goog-api-key"] == "k"


async def test_a_key_that_is_set_later_is_found(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        models = Models(proxy, origin, KeptKeys())
        port = await models.session("ann")
        assert status(await say(port, asking(MESSAGES, CLAUDE))) == 401
        models.keys.keys["user of ann", "anthropic"] = ProviderKey("late")
        assert status(await say(port, asking(MESSAGES, CLAUDE))) == 200
        assert origin.asked[0].headers["x-api-key"] == "late"


async def test_a_key_stays_while_the_store_is_away(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        port = await (models := Models(proxy, origin)).session("ann")

        def has_key() -> bool:
            policy = models.policy("ann")
            return policy is not None and b"canary-key" in bytes(policy.routes["anthropic"])

        await until(has_key)
        models.keys.away = True
        with capture_logs() as logs:
            models.gateway.keys_changed("user of ann")
            await until(lambda: len([each for each in logs if each["event"] == "egress.key_unknown"]) >= 3)
        assert status(await say(port, asking(MESSAGES, CLAUDE))) == 200
        assert origin.asked[0].headers["x-api-key"] == "canary-key"


async def test_a_session_asks_for_one_key_once_at_a_time(tmp_path: Path) -> None:
    """Else a few sessions' requests take all the room for questions, and others' keys are not found."""
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        models = Models(proxy, origin, keys := KeptKeys({("user of bob", "anthropic"): ProviderKey("bob's")}))
        slow, bob = await models.session("slow"), await models.session("bob")
        await until(lambda: keys.found["user of slow", "google"])
        before, keys.held = keys.found["user of slow", "anthropic"], asyncio.Event()
        many = [asyncio.create_task(say(slow, asking(MESSAGES, CLAUDE))) for _ in range(20)]
        assert status(await say(bob, asking(MESSAGES, CLAUDE))) == 200
        keys.held.set()
        assert {status(said) for said in await asyncio.gather(*many)} == {401}
        assert keys.found["user of slow", "anthropic"] - before < len(many)


async def test_a_refused_key_is_renewed_once(tmp_path: Path) -> None:
    async def script(asked: AskedOrigin, writer: asyncio.StreamWriter) -> bool:
        if asked.headers["authorization"] == "Bearer good":
            return False
        await whole(writer, 401, {"error": {"message": "the provider's own words"}})
        return True

    place = "user of ann", "anthropic"
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        keys = KeptKeys({place: ProviderKey("old", oauth=True)}, {place: ProviderKey("good", oauth=True)})
        port = await (models := Models(proxy, origin, keys)).session("ann")
        origin.script = script
        said = await say(port, asking(MESSAGES, CLAUDE, "anthropic-beta: other-1"))
        assert status(said) == 200
        assert [each.headers["authorization"] for each in origin.asked] == ["Bearer old", "Bearer good"]
        assert origin.asked[0].headers["anthropic-beta"] == "oauth-2025-04-20,other-1"
        assert "x-api-key" not in origin.asked[0].headers
        assert status(await say(port, asking(MESSAGES, CLAUDE))) == 200
        assert (len(origin.asked), keys.renewals) == (3, 1), "the new one is the session's from now on"
        keys.keys[place] = keys.renewed[place] = ProviderKey("bad", oauth=True)
        await models.session("ann")
        said = await until(lambda: _refused(port))
        assert error(said)["message"] == "the provider's own words"
        assert origin.asked[-1].headers["authorization"] == "Bearer bad"


async def _refused(port: int) -> bytes | None:
    said = await say(port, asking(MESSAGES, CLAUDE))
    return said if status(said) == 401 else None


async def test_redirects_are_not_followed_and_a_wrong_certificate_is_not_trusted(tmp_path: Path) -> None:
    async def script(asked: AskedOrigin, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 307 Away\r\nLocation: https://evil.test/\r\nContent-Length: 0\r\n\r\n")
        return True

    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        models = Models(proxy, origin)
        origin.script = script
        said = await say(await models.session("ann"), asking(MESSAGES, CLAUDE))
        assert status(said) == 502
        assert "redirect" in error(said)["message"]
        assert b"evil.test" not in said
        other = tmp_path / "other"
        other.mkdir()
        async with model_origin(other) as impostor:
            origin.port = impostor.port
            models.gateway.providers = origin.providers("anthropic")
            said = await say(await models.session("ann"), asking(MESSAGES, CLAUDE))
            assert status(said) == 502
            assert "certificate" in error(said)["message"]
            assert impostor.asked == []


async def test_a_budget_refuses_the_next_request_in_words(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        models = Models(proxy, origin, user_cost=NANO)
        port = await models.session("ann", cost=150_000)
        for _ in range(2):
            assert status(await say(port, asking(MESSAGES, CLAUDE))) == 200
        said = await say(port, asking(MESSAGES, CLAUDE))
        assert (status(said), error(said)["type"]) == (402, "billing_error")
        assert "this session's budget is used up" in error(said)["message"]
        said = await say(port, asking(MESSAGES, {**CLAUDE, "model": "nobody-knows-it"}))
        assert status(said) == 402
        assert "HOLDFAST_PRICES_FILE" in error(said)["message"]
        assert len(origin.asked) == 2


async def test_no_more_than_the_limit_and_one_request_is_spent_over_kills(tmp_path: Path) -> None:
    """Many at once, and the proxy killed in the middle, again and again."""
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        models = Models(proxy, origin)
        port = await models.session("ann", tokens=300)
        body = {**CLAUDE, "max_tokens": 50}
        most = 50 + len(json.dumps(body))

        async def ask() -> int:
            try:
                return status(await say(port, asking(MESSAGES, body)))
            except (OSError, IndexError):
                return 0

        async def killed_in_the_middle() -> None:
            asks = [asyncio.create_task(ask()) for _ in range(5)]
            seen = len(origin.asked)
            await until(lambda: len(origin.asked) > seen or all(each.done() for each in asks))
            os.kill(await proxy.ready(), signal.SIGKILL)
            await asyncio.wait(asks)

        for _ in range(3):
            await killed_in_the_middle()
        answers = [await ask() for _ in range(30)]
        assert answers[-1] == 402
        assert 15 * len(origin.asked) <= 300 + most, "each has cost 15 tokens"
        await until(lambda: 300 <= models.told["ann"].tokens.total <= 300 + most)


async def test_a_stream_that_breaks_off_breaks_off_and_is_estimated(tmp_path: Path) -> None:
    async def script(asked: AskedOrigin, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"b\r\ndata: one\n\n\r\n")
        await writer.drain()
        writer.close()
        return True

    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        port = await (models := Models(proxy, origin)).session("ann")
        origin.script = script
        said = await say(port, asking(MESSAGES, CLAUDE))
        assert said.endswith(b"data: one\n\n\r\n"), "no end is made up"
        spent = await until(lambda: models.told.get("ann"))
        assert (spent.estimated, spent.tokens.output) == (1, 1)


@pytest.mark.parametrize(("streamed", "made"), [(True, 0), (False, CLAUDE["max_tokens"])])
async def test_who_hangs_up_ends_the_request(tmp_path: Path, streamed: bool, made: int) -> None:
    """It has not been for nothing: the provider has the question, and makes an answer to the end that is no stream."""
    ended = asyncio.Event()

    async def script(asked: AskedOrigin, writer: asyncio.StreamWriter) -> bool:
        await writer.wait_closed()
        ended.set()
        return True

    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        port = await (models := Models(proxy, origin)).session("ann")
        origin.script = script
        _, writer = await connect(port)
        body = {**CLAUDE, "stream": streamed}
        writer.write(asking(MESSAGES, body))
        await until(lambda: origin.asked)
        writer.close()
        await ended.wait()
        spent = await until(lambda: models.told.get("ann"))
        assert spent.tokens == Tokens(len(origin.asked[0].body) // 4, made)
        assert spent.estimated == 1


async def test_what_was_spent_outlives_gateway_and_proxy(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        port = await (models := Models(proxy, origin)).session("ann")
        assert status(await say(port, asking(MESSAGES, CLAUDE))) == 200
        await until(lambda: models.told.get("ann"))
        os.kill(await proxy.ready(), signal.SIGKILL)
        later = Models(proxy, origin)
        await until(lambda: later.told.get("ann") == Spent(1, Tokens(10, 5), 105_000), "the journal was read")


async def test_an_answer_that_would_not_be_counted_is_refused(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        keys = KeptKeys({("user of ann", "openai"): ProviderKey("k")})
        port = await Models(proxy, origin, keys).session("ann")
        said = await say(port, asking("/openai/v1/responses", {"model": "gpt-5", "input": "x", "background": True}))
        assert (status(said), error(said)["code"]) == (400, "not_passed")
        assert origin.asked == []


async def test_a_request_in_chunks_goes_on_with_a_length(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        port = await Models(proxy, origin).session("ann")
        body = json.dumps(CLAUDE).encode()
        head = f"POST {MESSAGES} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
        said = await say(port, head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
        assert origin.asked[0].headers["content-length"] == str(len(body))
        assert "transfer-encoding" not in origin.asked[0].headers


async def test_an_answer_without_an_end_is_no_burden(tmp_path: Path) -> None:
    """A sandbox that does not read stops its provider, and nobody else."""
    sent = 0

    async def script(asked: AskedOrigin, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"data: " + b"x" * 65530
        while True:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            sent += len(piece)

    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        models = Models(proxy, origin)
        models.keys.keys["user of bob", "anthropic"] = ProviderKey("bob's")
        ann, bob = await models.session("ann"), await models.session("bob")
        origin.script = script
        _, writer = await connect(ann)
        writer.write(asking(MESSAGES, CLAUDE))
        await until(lambda: sent > 0)
        origin.script = None
        for _ in range(5):
            assert status(await say(bob, asking(MESSAGES, CLAUDE))) == 200
        assert sent < 64 << 20
        writer.close()


async def test_a_provider_that_is_away_is_told(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:

        async def nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...

        async with host(nobody) as port:
            origin.port = port
        models = Models(proxy, origin)
        said = await say(await models.session("ann"), asking(MESSAGES, CLAUDE))
        assert status(said) == 502
        assert "cannot be reached" in error(said)["message"]


async def test_large_bodies_of_a_few_leave_room_for_everybodys(tmp_path: Path) -> None:
    """They are only announced, and so take the room for a minute."""
    async with proxied(tmp_path) as proxy, model_origin(tmp_path) as origin:
        models = Models(proxy, origin)
        ann = await models.session("ann")
        writers = []
        for number in range(8):
            reader, writer = await connect(await models.session(f"eve{number % 4}"))
            writer.write(f"POST {MESSAGES} HTTP/1.1\r\nHost: x\r\nContent-Length: {32 << 20}\r\n".encode())
            writer.write(b"Expect: 100-continue\r\n\r\n")
            assert await reader.readexactly(11) in (b"HTTP/1.1 10", b"HTTP/1.1 50")
            writers.append(writer)
        assert status(await say(ann, asking(MESSAGES, CLAUDE))) == 200
        for writer in writers:
            writer.close()
