"""Every route of a running gateway, asked by everybody who should not get in: strangers find nothing anywhere."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.auth.identity import Accept
from gateway.auth.policy import RoutePolicy
from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.postgres import PostgresServer
from tests.support.routes import POLICY

SESSION = "adas"
ROUTES = [(method, path, policy) for (method, path), policy in POLICY.items()]
SERVICES = {"admin": Accept.ADMIN, "relay": Accept.RELAY, "internal": Accept.INTERNAL}
# What anybody hears where it is not 200: nothing was built that could be shown, a link that is over leads to the page,
# and what is for pages alone is not for programs.
PUBLIC = {
    "/assets/{path:path}": 404,
    "/favicon.svg": (200, 404),
    "/licences.txt": (200, 404),
    "/manifest.webmanifest": (200, 404),
    "/signin": 303,
    "/api/signin": 403,
}
# What speaks of the caller alone, or of the gateway as everybody sees it.
ONES_OWN = {
    ("GET", "/api/me"): '"userId":"eva"',
    ("GET", "/api/agents"): '"agents":[{"name":"demo"',
    ("GET", "/api/config"): '{"settings":{},"agents_md":"","files":[]',
    ("GET", "/api/credentials"): '{"credentials":[],"providers":[',
    ("GET", "/api/providers"): '"providers":[{"name":"local"',
    ("POST", "/api/token"): '"token":"',
}
# What a user writes here is that user's own: a body is missing, there is nothing to remove, everything is left out.
OWN_WRITES = {
    ("PUT", "/api/credentials/{provider}"): 400,
    ("DELETE", "/api/credentials/{provider}"): 404,
    ("PUT", "/api/config"): 200,
}
OF_A_USER = ("/api/credentials", "/api/config")  # whom a service has to name
# What the owner may do without changing the session for the tests that follow.
HARMLESS = frozenset({"GET", "WS"})


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("tenancy") / "data", DEMO="true") as running:
        await running.create(SESSION)
        await running.create("evas", "eva")
        async with running.chat(SESSION) as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="private", content="a private thought")
            await hear(socket, "done")
        async with running.http() as ada:
            assert (await ada.post(f"/api/sandboxes/{SESSION}/sync")).status_code == 200
            assert (await ada.post(f"/api/sandboxes/{SESSION}/terminals/main")).status_code == 201
        yield running


# Answers one line at a time, for as long as nobody has made the file `go` in its workspace.
LONG_ANSWER = """
import json, os, sys, time
for line in sys.stdin:
    if json.loads(line).get("type") == "message":
        while not os.path.exists("go"):
            print(json.dumps({"type": "text", "text": "."}), flush=True)
            time.sleep(0.05)
        print(json.dumps({"type": "done"}), flush=True)
"""


@pytest.fixture(scope="module")
async def neighbours(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> AsyncIterator[tuple[Gateway, Gateway, str]]:
    """Two gateways on one database. At the first, ada's agent is in the middle of an answer."""
    url, directory = postgres_server.create_database(), tmp_path_factory.mktemp("neighbours")
    async with (
        Gateway(directory / "first", STORE=url) as first,
        Gateway(directory / "second", STORE=url, DEMO="true", CREATE_ON_ATTACH="true") as second,
    ):
        await first.create(SESSION, agent=["python3", "-c", LONG_ANSWER])
        async with first.chat(SESSION) as socket:
            await hear(socket, "welcome")
            await say(socket, "message", cid="long", content="think hard")
            await hear(socket, "text")
        yield first, second, url


async def fence(url: str) -> int:
    """How often the session was loaded, by whomever."""
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT fence FROM sessions WHERE id = $1", SESSION))
    finally:
        await connection.close()


@dataclass
class Reply:
    status: int
    text: str


async def ask(gateway: Gateway, method: str, path: str, policy: RoutePolicy, headers: dict[str, str]) -> Reply:
    """Use the route on ada's session; an upgrade that succeeds is 101."""
    target = path.replace("{id}", SESSION).replace("{sessionId}", SESSION).replace("{number}", "1")
    target = target.replace("{provider}", "openai").replace("{name}", "main").replace("{what}", "kill-bridge")
    target = target.replace("{generation}", "newest").replace("{path:path}", "")
    if method == "WS":
        query = f"?sessionId={SESSION}" if path == "/ws/v2" else ""
        url = gateway.url.replace("http", "ws", 1) + target + query
        try:
            async with connect(url, additional_headers=headers, compression=None, proxy=None) as socket:
                return Reply(101, str(await socket.recv()) if path == "/ws/events" else "")
        except InvalidStatus as refusal:
            return Reply(refusal.response.status_code, bytes(refusal.response.body or b"").decode())
    body = {"sessionId": SESSION} if path == "/api/tickets" else {}
    if path == "/internal/sessions/{id}/messages":
        body = {"role": "system", "content": "x"}
    async with gateway.http(headers) as client:
        answer = await client.request(method, target, json=body if method == "POST" else None)
    return Reply(answer.status_code, answer.text)


def answers_anybody(path: str, reply: Reply) -> bool:
    expected = PUBLIC.get(path, 200)
    return reply.status in (expected if isinstance(expected, tuple) else (expected,))


def _names() -> list[str]:
    return [f"{method} {path}" for method, path, _ in ROUTES]


every_route = pytest.mark.parametrize(("method", "path", "policy"), ROUTES, ids=_names())


@every_route
async def test_without_or_with_an_expired_credential_only_public_routes_answer(
    gateway: Gateway, method: str, path: str, policy: RoutePolicy
) -> None:
    expired = {"Authorization": f"Bearer {gateway.token('ada', ttl=-120)}"}
    for headers in ({}, expired, {"Authorization": "Bearer x.y.z"}):
        reply = await ask(gateway, method, path, policy, headers)
        if policy.accept is Accept.NOBODY:
            assert answers_anybody(path, reply), reply
        else:
            assert reply.status == 401, reply.text
            assert set(json.loads(reply.text)) == {"error", "code"}


@every_route
async def test_a_stranger_is_told_that_there_is_nothing(
    gateway: Gateway, method: str, path: str, policy: RoutePolicy
) -> None:
    reply = await ask(gateway, method, path, policy, gateway.bearer("eva"))
    if policy.accept is Accept.NOBODY:
        assert answers_anybody(path, reply), reply
    elif Accept.USER not in policy.accept:
        assert reply.status == 401
    elif (method, path) == ("POST", "/api/sandboxes/{id}"):
        assert reply.status == 409  # the one place where an id must be called taken
    elif path in ("/api/sandboxes", "/ws/events"):
        assert [each["id"] for each in json.loads(reply.text)["sandboxes"]] == ["evas"]
    elif (method, path) in ONES_OWN:
        assert reply.status in (200, 201)
        assert ONES_OWN[method, path] in reply.text
        assert "ada" not in reply.text
    elif (method, path) in OWN_WRITES:
        assert reply.status == OWN_WRITES[method, path]
        assert "ada" not in reply.text
    else:
        assert (reply.status, json.loads(reply.text)["code"]) == (404, "unknown_session")
    assert "private thought" not in reply.text


@every_route
async def test_a_services_token_opens_nothing_beyond_its_scope(
    gateway: Gateway, method: str, path: str, policy: RoutePolicy
) -> None:
    shown = {"admin": gateway.admin, "relay": gateway.relay, "internal": gateway.internal}
    for name, scope in SERVICES.items():
        if policy.accept is not Accept.NOBODY and not policy.accept & scope:
            assert (await ask(gateway, method, path, policy, shown[name])).status == 401, name


@every_route
async def test_whoever_a_route_is_for_gets_in(gateway: Gateway, method: str, path: str, policy: RoutePolicy) -> None:
    """The matrix can fail: the same requests succeed for those who may."""
    shown = {"admin": gateway.admin, "relay": gateway.relay, "internal": gateway.internal}
    allowed = [shown[name] for name, scope in SERVICES.items() if scope in policy.accept]
    if Accept.USER in policy.accept:
        allowed.append(gateway.bearer("ada"))
    for headers in allowed if method in HARMLESS else []:
        named = f"{path}?userId=ada" if path in OF_A_USER else path
        reply = await ask(gateway, method, named, policy, headers)
        there_is_none = "{number}" in path and '"code":"unknown_letter"' in reply.text
        assert reply.status in (101, 200) or there_is_none


async def test_after_all_that_the_session_is_as_it_was(gateway: Gateway) -> None:
    async with gateway.http() as client:
        described = (await client.get(f"/api/sandboxes/{SESSION}/status")).json()
    assert described["status"] == "running"
    assert described["incarnation"] == 1
    assert [record["cid"] for record in await gateway.messages(SESSION)][:1] == ["private"]
    assert described["lastSeq"] == 2


async def test_a_frame_that_names_another_session_stays_where_it_was_sent(gateway: Gateway) -> None:
    before = await gateway.messages(SESSION)
    async with gateway.chat("evas", "eva") as socket:
        await hear(socket, "welcome")
        await say(socket, "start", sessionId=SESSION, model="x")
        await say(socket, "message", sessionId=SESSION, cid="stray", content="whose?")
        await hear(socket, "done")
    assert await gateway.messages(SESSION) == before
    assert "stray" in [record["cid"] for record in await gateway.messages("evas")]


async def test_a_strangers_socket_and_an_unknown_one_are_refused_alike(gateway: Gateway) -> None:
    replies = []
    for session_id in (SESSION, "nobodys"):
        with pytest.raises(InvalidStatus) as refusal:
            async with gateway.chat(session_id, "eva"):
                pass
        response = refusal.value.response
        replies.append((response.status_code, bytes(response.body or b"")))
    assert replies[0] == replies[1]
    assert replies[0][0] == 404


async def test_a_user_cannot_list_anothers_sessions(gateway: Gateway) -> None:
    async with gateway.http(gateway.bearer("eva")) as client:
        answer: httpx.Response = await client.get("/api/sandboxes", params={"userId": "ada"})
    assert answer.status_code == 403
    assert SESSION not in answer.text


async def test_what_cannot_be_kept_is_told_without_a_path_of_the_host(gateway: Gateway) -> None:
    objects, aside = gateway.data_dir / "objects", gateway.data_dir / "aside"
    (gateway.data_dir / "sandboxes" / SESSION / "kept" / "workspace" / "new").write_bytes(b"not kept yet")
    objects.rename(aside)
    objects.touch()
    try:
        async with gateway.http() as ada:
            refused = await ada.post(f"/api/sandboxes/{SESSION}/sync")
            told = (await ada.get(f"/api/sandboxes/{SESSION}/status")).text
    finally:
        objects.unlink()
        aside.rename(objects)
    assert (refused.status_code, refused.json()["code"]) == (503, "sync_failed")
    assert str(gateway.data_dir) not in refused.text + told


# Whoever asked for a session once loaded it, and so took it from the gateway that had it, before anybody looked whose
# it is: a stranger's 404 at another gateway ended its owner's answer.
@every_route
async def test_a_stranger_at_another_gateway_takes_no_session_from_its_own(
    neighbours: tuple[Gateway, Gateway, str], method: str, path: str, policy: RoutePolicy
) -> None:
    _, second, url = neighbours
    before = await fence(url)
    await ask(second, method, path, policy, second.bearer("eva"))
    assert await fence(url) == before


async def test_the_answer_that_was_under_way_meanwhile_is_complete(neighbours: tuple[Gateway, Gateway, str]) -> None:
    first, _, _ = neighbours
    async with first.chat(SESSION) as socket:
        await hear(socket, "welcome")
        (first.data_dir / "sandboxes" / SESSION / "kept" / "workspace" / "go").touch()
        await hear(socket, "done")
    statuses = [(record["role"], record["status"]) for record in await first.messages(SESSION)]
    assert statuses == [("user", "delivered"), ("assistant", "complete")]
