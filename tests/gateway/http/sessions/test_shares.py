"""Shares of a real gateway: a token that opens one session, for looking, until its end."""

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import httpx
import jwt
import pytest
from starlette.requests import Request
from starlette.types import Message
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from gateway.auth.identity import Accept
from gateway.auth.shares import MOST
from gateway.auth.tokens import Principal
from gateway.http.sessions.shares import ShareRoutes
from gateway.protocol.errors import ApiError
from tests.gateway.http.sessions.test_lifecycle import comes_to, refused
from tests.support.chat import hear, say
from tests.support.gateway import Gateway
from tests.support.routes import POLICY
from tests.support.sessions import World

SHARES = "/api/sandboxes/shown/shares"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("shares") / "data") as running:
        await running.create("shown")
        await running.create("hidden")
        async with running.http() as client:
            for session_id in ("shown", "hidden"):
                await comes_to(client, session_id, "running")
            assert (await client.post("/api/sandboxes/shown/terminals/main", json={"command": ["cat"]})).is_success
        yield running


@pytest.fixture
async def share(gateway: Gateway) -> str:
    async with gateway.http() as ada:
        answer = await ada.post(SHARES)
    assert answer.status_code == 201
    token: str = answer.json()["token"]
    return token


@pytest.fixture
async def guest(gateway: Gateway, share: str) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http({"Authorization": f"Bearer {share}"}) as client:
        yield client


def socket(gateway: Gateway, path: str, token: str, **query: str) -> connect:
    address = httpx.URL(gateway.url.replace("http", "ws", 1) + path, params=query)
    return connect(str(address), additional_headers={"Authorization": f"Bearer {token}"}, compression=None, proxy=None)


async def refusal_of(opening: connect) -> tuple[int, str]:
    """Status and code of an upgrade that is refused."""
    with pytest.raises(InvalidStatus) as refusal:
        async with opening:
            pass
    response = refusal.value.response
    return response.status_code, json.loads(bytes(response.body or b""))["code"]


async def test_a_share_says_what_it_is_for_and_when_it_ends(gateway: Gateway) -> None:
    async with gateway.http() as ada:
        answer = await ada.post(SHARES, json={"ttl": 60})
        usual = await ada.post(SHARES)
    shared = answer.json()
    assert answer.status_code == 201
    assert set(shared) == {"token", "sessionId", "role", "number", "label", "createdAt", "expiresAt"}
    assert (shared["sessionId"], shared["role"], shared["label"]) == ("shown", "view", "")
    claims = jwt.decode(shared["token"], gateway.secret("jwt_secret"), ["HS256"])
    stamp = claims["holdfast"].pop("stamp")
    assert claims["holdfast"] == {"session": "shown", "role": "view", "share": shared["number"]}
    assert len(stamp) == 16
    assert usual.json()["number"] == shared["number"] + 1
    assert (claims["userId"], claims["email"]) == ("ada", "ada@example.com")
    ends = datetime.fromisoformat(shared["expiresAt"].replace("Z", "+00:00")).timestamp()
    assert claims["exp"] == ends
    assert claims["exp"] - claims["iat"] == 60
    claims = jwt.decode(usual.json()["token"], gateway.secret("jwt_secret"), ["HS256"])
    assert claims["exp"] - claims["iat"] == 3600


async def test_a_service_shares_for_the_owner(gateway: Gateway) -> None:
    async with gateway.http(gateway.relay) as service:
        token = (await service.post(SHARES)).json()["token"]
    assert jwt.decode(token, gateway.secret("jwt_secret"), ["HS256"])["userId"] == "ada"
    async with gateway.http({"Authorization": f"Bearer {token}"}) as guest:
        assert (await guest.get("/api/sandboxes/shown/status")).json()["id"] == "shown"


@pytest.mark.parametrize("ttl", [0, -1, 30 * 86400 + 1, 1.5, True, "60", None, [], 10**30])
async def test_a_share_lives_whole_seconds_within_bounds(gateway: Gateway, ttl: Any) -> None:
    async with gateway.http() as ada:
        answer = await ada.post(SHARES, json={"ttl": ttl})
        assert answer.status_code == 400, answer.text
        refused(await ada.post(SHARES, json={"for": "eva"}), 400, "unknown_member")
        refused(await ada.post("/api/sandboxes/nobodys/shares"), 404, "unknown_session")


async def test_a_gateway_that_signs_nothing_shares_nothing() -> None:
    scope = {"type": "http", "method": "POST", "headers": [], "path_params": {"id": "s"}}

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async with World() as world:
        await world.create()
        request = Request(scope | {"state": {"principal": Principal("admin")}}, receive)
        with pytest.raises(ApiError) as refusal:
            await ShareRoutes(world.registry, world.catalogue, None, issuer=None, audience=None).create(request)
    assert (refusal.value.status, refusal.value.code) == (501, "no_shares")


# Which there are


async def test_shares_are_listed_without_their_tokens(gateway: Gateway) -> None:
    await gateway.create("listed")
    path = "/api/sandboxes/listed/shares"
    async with gateway.http() as ada, gateway.http(gateway.bearer("eva")) as eva:
        assert (await ada.get(path)).json() == {"shares": []}
        made = [
            (await ada.post(path, json={"ttl": 60, "label": label})).json() for label in ("eva", "", "für \U0001f600")
        ]
        listed = await ada.get(path)
        expected = [{name: each[name] for name in ("number", "label", "createdAt", "expiresAt")} for each in made]
        assert listed.json() == {"shares": expected}
        assert [each["number"] for each in expected] == [1, 2, 3]
        assert (await ada.get("/api/sandboxes/listed/status")).text.count("stamp") == 0
        refused(await eva.get(path), 404, "unknown_session")
        refused(await eva.delete(f"{path}/1"), 404, "unknown_session")
        refused(await ada.get("/api/sandboxes/nobodys/shares"), 404, "unknown_session")


@pytest.mark.parametrize("label", [7, None, "x" * 65, "two\nlines", "bell\a", "\u202e", {}])
async def test_a_label_is_one_short_line(gateway: Gateway, label: Any) -> None:
    async with gateway.http() as ada:
        refused(await ada.post(SHARES, json={"label": label}), 400, "bad_member")


async def test_a_session_has_so_many_shares_and_no_more(gateway: Gateway) -> None:
    await gateway.create("crowded")
    path = "/api/sandboxes/crowded/shares"
    async with gateway.http() as ada:
        for number in range(1, MOST + 1):
            assert (await ada.post(path)).json()["number"] == number
        refused(await ada.post(path), 409, "too_many_shares")
        assert (await ada.delete(f"{path}/7")).json()["number"] == 7
        assert (await ada.post(path)).json()["number"] == MOST + 1
        refused(await ada.post(path), 409, "too_many_shares")


# How it is taken back


@pytest.mark.parametrize("number", ["0", "99", "-1", "1.0", "x", "9" * 40, "\u0661"])
async def test_what_was_never_given_cannot_be_taken_back(gateway: Gateway, number: str) -> None:
    async with gateway.http() as ada:
        refused(await ada.delete(f"{SHARES}/{number}"), 404, "unknown_share")


async def test_a_share_that_was_taken_back_opens_nothing(gateway: Gateway) -> None:
    async with gateway.http() as ada:
        gone, kept = [(await ada.post(SHARES)).json() for _ in range(2)]
        async with (
            gateway.http({"Authorization": f"Bearer {gone['token']}"}) as guest,
            gateway.http({"Authorization": f"Bearer {kept['token']}"}) as other,
        ):
            ticket = (await guest.post("/api/tickets", json={"sessionId": "shown"})).json()["ticket"]
            taken = await ada.delete(f"{SHARES}/{gone['number']}")
            assert (taken.status_code, taken.json()["number"]) == (200, gone["number"])
            for (method, path), policy in POLICY.items():
                if not policy.shared:
                    continue
                target = path.replace("{id}", "shown").replace("{sessionId}", "shown").replace("{name}", "main")
                if method == "WS":
                    opening = socket(gateway, target, gone["token"], sessionId="shown")
                    assert await refusal_of(opening) == (401, "share_ended"), target
                else:
                    refused(await guest.request(method, target, json={"sessionId": "shown"}), 401, "share_ended")
            url = gateway.url.replace("http", "ws", 1)
            by_ticket = connect(f"{url}/ws/v2?sessionId=shown&ticket={ticket}", proxy=None)
            assert await refusal_of(by_ticket) == (401, "share_ended")
            assert (await other.get("/api/sandboxes/shown/status")).status_code == 200
        refused(await ada.delete(f"{SHARES}/{gone['number']}"), 404, "unknown_share")
        numbers = [each["number"] for each in (await ada.get(SHARES)).json()["shares"]]
        assert gone["number"] not in numbers
        assert kept["number"] in numbers


async def test_a_share_of_the_version_before_opens_nothing(gateway: Gateway) -> None:
    """It has no number: nobody could take it back, and nothing says of which session of that id it was."""
    old = gateway.token("ada", holdfast={"session": "shown", "role": "view"})
    async with gateway.http({"Authorization": f"Bearer {old}"}) as guest:
        refused(await guest.get("/api/sandboxes/shown/status"), 401, "share_ended")
    assert await refusal_of(socket(gateway, "/terminal/shown", old)) == (401, "share_ended")


@pytest.mark.parametrize("purge", ["0", "1"])
async def test_a_share_ends_with_its_session(gateway: Gateway, purge: str) -> None:
    """A session was purged and made anew, and the share of the old one showed the new one."""
    name = f"again{purge}"
    await gateway.create(name)
    async with gateway.http() as ada:
        shared = (await ada.post(f"/api/sandboxes/{name}/shares")).json()
        async with gateway.http({"Authorization": f"Bearer {shared['token']}"}) as guest:
            assert (await guest.get(f"/api/sandboxes/{name}/status")).status_code == 200
            assert (await ada.delete(f"/api/sandboxes/{name}", params={"purge": purge})).status_code == 200
            refused(await guest.get(f"/api/sessions/{name}/messages"), 401, "share_ended")
            if purge == "0":
                refused(await ada.post(f"/api/sandboxes/{name}/shares"), 409, "archived")
            await gateway.create(name, title="new and private")
            refused(await guest.get(f"/api/sandboxes/{name}/status"), 401, "share_ended")
            assert (await ada.get(f"/api/sandboxes/{name}/shares")).json() == {"shares": []}
            anew = (await ada.post(f"/api/sandboxes/{name}/shares")).json()
            assert anew["number"] == (2 if purge == "0" else 1)
            refused(await guest.get(f"/api/sandboxes/{name}/status"), 401, "share_ended")


async def test_a_branch_begins_without_shares(gateway: Gateway) -> None:
    await gateway.create("stem")
    async with gateway.http() as ada:
        await comes_to(ada, "stem", "running")
        shared = (await ada.post("/api/sandboxes/stem/shares")).json()
        assert (await ada.post("/api/sandboxes/stem/sync")).is_success
        branched = (await ada.post("/api/sandboxes/stem/snapshots/newest/branch")).json()["id"]
        assert (await ada.get(f"/api/sandboxes/{branched}/shares")).json() == {"shares": []}
        claims = jwt.decode(shared["token"], gateway.secret("jwt_secret"), ["HS256"])["holdfast"]
    forged = gateway.token("ada", holdfast={**claims, "session": branched})
    async with gateway.http({"Authorization": f"Bearer {forged}"}) as guest:
        refused(await guest.get(f"/api/sandboxes/{branched}/status"), 401, "share_ended")


# What it opens


async def test_a_guest_looks_at_that_session_and_at_no_other(gateway: Gateway, guest: httpx.AsyncClient) -> None:
    for path in ("/api/sandboxes/{}/status", "/api/sandboxes/{}/terminals", "/api/sessions/{}/messages",
                 "/jupyter/{}/api/terminals", "/jupyter/{}/api/terminals/main", "/tty/{}/token"):  # fmt: skip
        assert (await guest.get(path.format("shown"))).status_code == 200, path
        for other in ("hidden", "nobodys"):
            refused(await guest.get(path.format(other)), 404, "unknown_session")


async def test_a_guest_does_nothing_but_look(gateway: Gateway, guest: httpx.AsyncClient) -> None:
    for (method, path), policy in POLICY.items():
        if method == "WS" or policy.shared or not policy.accept:
            continue
        target = path.replace("{id}", "shown").replace("{name}", "main").replace("{path:path}", "")
        target = target.replace("{generation}", "newest").replace("{number}", "1")
        answer = await guest.request(method, target)
        wanted = 403 if Accept.USER in policy.accept else 401
        assert answer.status_code == wanted, (method, path, answer.text)
        assert wanted == 401 or answer.json()["code"] == "read_only"
    async with gateway.http() as ada:
        assert (await ada.get("/api/sandboxes/shown/status")).json()["status"] == "running"


async def test_a_guest_at_a_terminal_sees_and_does_not_type(gateway: Gateway, share: str) -> None:
    async with (
        gateway.socket("/terminal/shown", dialect="native") as ada,
        socket(gateway, "/terminal/shown", share, dialect="native", cols="10", rows="5") as guest,
    ):
        assert json.loads(await ada.recv())["type"] == "ready"
        ready = json.loads(await guest.recv())
        assert (ready["type"], ready["cols"]) == ("ready", 80)
        await guest.send(b"typed by the guest\n")
        await guest.send(json.dumps({"type": "resize", "cols": 11, "rows": 6}))
        await (await guest.ping())
        await ada.send(b"typed by ada\n")
        seen = b""
        while b"typed by ada\r\ntyped by ada\r\n" not in seen:
            got = await guest.recv()
            seen += got if isinstance(got, bytes) else b""
        assert b"guest" not in seen


async def test_a_guest_asks_for_nothing_more_than_to_look(gateway: Gateway, share: str) -> None:
    async with socket(gateway, "/terminal/shown", share, role="drive", dialect="native") as guest:
        await guest.recv()
        await guest.send(b"typed by the guest\n")
        await (await guest.ping())
    for path in ("/terminal/hidden", "/v1/sandbox/hidden/pty", "/tty/hidden/ws", "/ws/sandboxes/shown"):
        expected = (403, "read_only") if path.startswith("/ws/") else (404, "unknown_session")
        assert await refusal_of(socket(gateway, path, share)) == expected
    assert await refusal_of(socket(gateway, "/ws/v2", share, sessionId="hidden")) == (404, "unknown_session")


async def test_a_guest_starts_no_terminal(gateway: Gateway, share: str) -> None:
    async with socket(gateway, "/terminal/shown", share, name="guests", dialect="native") as guest:
        assert await trouble(guest) == "unknown_terminal"
        async with gateway.http() as ada:
            found = (await ada.get("/api/sandboxes/shown/terminals")).json()["terminals"]
    assert [each["name"] for each in found] == ["main"]


async def test_a_guest_reads_a_conversation_and_does_not_speak_in_it(gateway: Gateway, share: str) -> None:
    async with gateway.chat("shown") as ada, socket(gateway, "/ws/v2", share, sessionId="shown") as guest:
        await hear(guest, "welcome")
        await say(guest, "message", cid="g1", content="may I?")
        nack = await hear(guest, "nack")
        assert (nack["cid"], nack["reason"]) == ("g1", "read_only")
        for type, members in (("abort", {}), ("start", {"model": "x"}), ("close", {})):
            await say(guest, type, **members)
            assert (await hear(guest, "error"))["code"] == "read_only"
        await say(guest, "ping", id=1)
        await hear(guest, "pong")
        await say(ada, "message", cid="a1", content="hello")
        assert (await hear(guest, "record"))["cid"] == "a1"
        await hear(guest, "done")
    assert "g1" not in [record["cid"] for record in await gateway.messages("shown")]


async def test_a_guests_ticket_is_no_more_than_the_share(gateway: Gateway, guest: httpx.AsyncClient) -> None:
    refused(await guest.post("/api/tickets", json={"sessionId": "hidden"}), 404, "unknown_session")
    ticket = (await guest.post("/api/tickets", json={"sessionId": "shown"})).json()["ticket"]
    url = gateway.url.replace("http", "ws", 1)
    async with connect(f"{url}/ws/v2?sessionId=shown&ticket={ticket}", proxy=None) as socket:
        await hear(socket, "welcome")
        await say(socket, "message", cid="g2", content="may I?")
        assert (await hear(socket, "nack"))["reason"] == "read_only"
    ticket = (await guest.post("/api/tickets", json={"sessionId": "shown"})).json()["ticket"]
    assert await refusal_of(connect(f"{url}/terminal/hidden?ticket={ticket}", proxy=None)) == (401, "bad_credentials")


async def test_a_share_is_renewed_by_another_of_its_kind_alone(gateway: Gateway, share: str) -> None:
    async with socket(gateway, "/terminal/shown", share, dialect="native") as guest:
        await guest.recv()
        await say(guest, "auth", token=gateway.token("ada"))
        assert await trouble(guest) == "other_user", "not by its owner's own either: that would let it drive"
    async with gateway.socket("/terminal/shown", dialect="native") as ada:
        await ada.recv()
        await say(ada, "auth", token=share)
        assert await trouble(ada) == "other_user"


async def trouble(viewer: ClientConnection) -> str:
    """The code of the next error it is told."""
    while True:
        got = await viewer.recv()
        if isinstance(got, str) and (told := json.loads(got))["type"] == "error":
            return str(told["code"])


async def test_a_share_ends(gateway: Gateway, share: str) -> None:
    scope = jwt.decode(share, gateway.secret("jwt_secret"), ["HS256"])["holdfast"]
    over = gateway.token("ada", ttl=-31, holdfast=scope)
    assert await refusal_of(socket(gateway, "/terminal/shown", over)) == (401, "token_expired")
    ending = gateway.token("ada", ttl=30, holdfast=scope)
    async with socket(gateway, "/terminal/shown", ending, dialect="native") as guest:
        while not isinstance(told := await guest.recv(), str) or json.loads(told)["type"] != "auth_expiring":
            pass


@pytest.mark.parametrize(
    "scope",
    [
        1, True, "view", [], {}, {"session": "shown"}, {"role": "view"}, {"role": "drive"}, {"session": ""},
        {"session": "", "role": "view"}, {"session": "shown", "role": "drive"}, {"session": "shown", "role": "VIEW"},
        {"session": "shown", "role": None}, {"session": 7, "role": "view"}, {"session": ["shown"], "role": "view"},
        {"session": None, "role": "view"}, {"session": "shown", "role": "view", "share": 1},
        {"session": "shown", "role": "view", "stamp": "x"},
        {"session": "shown", "role": "view", "share": "1", "stamp": "x"},
        {"session": "shown", "role": "view", "share": True, "stamp": "x"},
        {"session": "shown", "role": "view", "share": 1, "stamp": 7},
    ],
)  # fmt: skip
async def test_a_scope_that_cannot_be_read_opens_nothing(gateway: Gateway, scope: Any) -> None:
    token = gateway.token("ada", holdfast=scope)
    async with gateway.http({"Authorization": f"Bearer {token}"}) as client:
        for path in ("/api/sandboxes/shown/status", "/api/sandboxes"):
            refused(await client.get(path), 401, "token_claims")
    assert await refusal_of(socket(gateway, "/terminal/shown", token)) == (401, "token_claims")


@pytest.mark.parametrize("session", ["../shown", "shown/", "x" * 300, "\u202eshown", "shown\0"])
async def test_a_scope_that_names_no_session_there_could_be_opens_none(gateway: Gateway, session: str) -> None:
    token = gateway.token("ada", holdfast={"session": session, "role": "view", "share": 1, "stamp": "x"})
    async with gateway.http({"Authorization": f"Bearer {token}"}) as client:
        refused(await client.get("/api/sandboxes/shown/status"), 404, "unknown_session")
        refused(await client.post("/api/sandboxes/shown/wake"), 403, "read_only")
