"""Sessions without a user: services create and use them, and no user's token opens one, on any route."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.auth.identity import Accept
from persistence.record import NO_USER
from persistence.sqlite.store import SqliteStore
from sync.format.keys import Keys
from tests.support.gateway import Gateway
from tests.support.launcher import launch
from tests.support.routes import POLICY
from tests.support.waiting import PATIENCE, until

SESSION = "services-own"
OF_A_SESSION = [key for key, policy in POLICY.items() if policy.session_in and Accept.USER in policy.accept]
LOOKALIKES = (" ", "null", "None", "undefined")  # names that somebody may take for nobody's
NOBODY: tuple[object, ...] = ("", None, 0, False, [], {}, "\0", "\n", "\N{NO-BREAK SPACE}")


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    limits = {"MAX_SESSIONS_PER_USER": 1, "MAX_RUNNING_PER_USER": 1}
    async with Gateway(tmp_path_factory.mktemp("service") / "data", DEMO="true", **limits) as running:
        async with running.http(running.relay) as relay:
            created = await relay.post(f"/api/sandboxes/{SESSION}", json={"title": "nightly"})
            assert (created.status_code, created.json()["userId"]) == (201, None), created.text
            assert (await relay.post(f"/api/sandboxes/{SESSION}/sync")).status_code == 200
        yield running


async def ask(gateway: Gateway, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    target = path.replace("{id}", SESSION).replace("{sessionId}", SESSION).replace("{number}", "1")
    target = target.replace("{name}", "main").replace("{what}", "kill-bridge")
    target = target.replace("{generation}", "newest").replace("{path:path}", "")
    if method == "WS":
        query = f"?sessionId={SESSION}" if path == "/ws/v2" else ""
        try:
            async with connect(gateway.url.replace("http", "ws", 1) + target + query, additional_headers=headers):
                return httpx.Response(101)
        except InvalidStatus as refusal:
            return httpx.Response(refusal.response.status_code, content=bytes(refusal.response.body or b""))
    async with gateway.http(headers) as client:
        return await client.request(method, target)


@pytest.mark.parametrize(("method", "path"), OF_A_SESSION, ids=lambda part: str(part))
async def test_no_users_token_opens_it(gateway: Gateway, method: str, path: str) -> None:
    for user in LOOKALIKES:
        reply = await ask(gateway, method, path, gateway.bearer(user))
        taken = (method, path) == ("POST", "/api/sandboxes/{id}")
        assert (reply.status_code, reply.json()["code"]) == ((409, "taken") if taken else (404, "unknown_session"))
    nameless = {"Authorization": f"Bearer {gateway.token('x', userId='')}"}
    assert (await ask(gateway, method, path, nameless)).status_code == 401


async def test_a_token_that_names_nobody_is_refused(gateway: Gateway) -> None:
    for name in NOBODY:
        async with gateway.http({"Authorization": f"Bearer {gateway.token('x', userId=name)}"}) as nobody:
            refused = await nobody.get(f"/api/sandboxes/{SESSION}")
        assert (refused.status_code, refused.json()["code"]) == (401, "token_claims"), name
    async with gateway.http(gateway.admin) as admin:
        link = await admin.post("/api/links", json={"userId": "", "email": "nobody@example.com"})
    assert link.status_code == 400


async def test_users_neither_list_it_nor_get_a_ticket_or_a_share_for_it(gateway: Gateway) -> None:
    for user in ("ada", *LOOKALIKES):
        async with gateway.http(gateway.bearer(user)) as client:
            assert (await client.get("/api/sandboxes")).json() == {"sandboxes": []}
            assert (await client.get("/api/sandboxes", params={"userId": ""})).status_code == 403
            assert (await client.post("/api/tickets", json={"sessionId": SESSION})).status_code == 404
            assert (await client.get("/api/me")).json()["limits"]["sessions"]["used"] == 0
        async with gateway.socket("/ws/events", user) as events:
            assert json.loads(await events.recv())["sandboxes"] == []
    async with gateway.http(gateway.admin) as admin:
        shared = await admin.post(f"/api/sandboxes/{SESSION}/shares")
        assert (shared.status_code, shared.json()["code"]) == (409, "no_owner")
        assert "userId" in shared.json()["error"]
        assert (await admin.get(f"/api/sandboxes/{SESSION}/shares")).json() == {"shares": []}


async def test_services_list_read_and_export_it(gateway: Gateway) -> None:
    for headers in (gateway.admin, gateway.relay):
        async with gateway.http(headers) as service:
            listed = (await service.get("/api/sandboxes")).json()["sandboxes"]
            assert [each["userId"] for each in listed if each["id"] == SESSION] == [None]
            assert (await service.get("/api/sandboxes", params={"userId": ""})).status_code == 400
            again = await service.post(f"/api/sandboxes/{SESSION}", json={"title": "another"})
            assert (again.status_code, again.json()["title"]) == (200, "nightly")
            taken = await service.post(f"/api/sandboxes/{SESSION}", json={"userId": "ada"})
            assert (taken.status_code, taken.json()["code"]) == (409, "taken")
    async with gateway.http(gateway.admin) as admin:
        assert (await admin.get(f"/files/{SESSION}/", params={"source": "synced"})).status_code == 200
        assert (await admin.get(f"/logs/{SESSION}")).status_code == 200
    async with gateway.http(gateway.internal) as internal:
        note = {"role": "system", "type": "note", "content": "x"}
        assert (await internal.post(f"/internal/sessions/{SESSION}/messages", json=note)).status_code == 201
        listed = (await internal.get("/internal/sessions")).json()["sessions"]
        assert [each["userId"] for each in listed if each["id"] == SESSION] == [None]
        lines = (await internal.get(f"/internal/sessions/{SESSION}/export")).text.splitlines()
        assert [json.loads(line)["userId"] for line in lines] == [None]
    relay = connect(gateway.url.replace("http", "ws", 1) + f"/ws/sandboxes/{SESSION}", additional_headers=gateway.relay)
    async with relay as socket:
        await socket.send(json.dumps({"type": "message", "content": "good morning"}))
        assert await socket.recv()


async def test_a_users_session_is_not_the_services_to_create(gateway: Gateway) -> None:
    await gateway.create("adas", "ada")
    async with gateway.http(gateway.relay) as relay:
        refused = (await relay.post("/api/sandboxes/adas", json={})).json()
        assert refused == {
            "error": "this session id is a user's: give the owner's userId, or choose another id",
            "code": "taken",
        }
        assert (await relay.post("/api/sandboxes/adas", json={"userId": "ada"})).status_code == 200, "as it says"
        assert (await relay.get("/api/sandboxes/adas")).json()["userId"] == "ada"


async def test_limits_of_users_are_not_the_services(gateway: Gateway) -> None:
    """The gateway of these tests gives a user one session, and one that runs."""
    async with gateway.http(gateway.admin) as admin:
        for session_id in ("second", "third"):
            assert (await admin.post(f"/api/sandboxes/{session_id}")).status_code == 201
            assert (await admin.delete(f"/api/sandboxes/{session_id}", params={"purge": "1"})).status_code == 200
        await gateway.create("bobs-1", "bob")
        refused = await admin.post("/api/sandboxes/bobs-2", json={"userId": "bob"})
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_running")


async def test_a_backup_has_it_with_its_workspace(gateway: Gateway, tmp_path: Path) -> None:
    taking = await launch("backup", str(tmp_path / "backup"), env=gateway.environment())
    async with asyncio.timeout(PATIENCE):
        assert await taking.wait() == 0
    assert (tmp_path / "backup" / "data" / "objects" / Keys.of_user(NO_USER).pointer(SESSION)).exists()
    async with SqliteStore(tmp_path / "backup" / "data" / "holdfast.db") as store:
        kept = await store.find(SESSION)
    assert kept is not None
    assert kept.user_id == NO_USER


async def test_it_lives_like_any_other_and_outlives_a_restart(gateway: Gateway) -> None:
    one = f"/api/sandboxes/{SESSION}"
    async with gateway.http(gateway.relay) as relay:
        assert (await relay.post(f"{one}/sleep")).json()["status"] == "sleeping"
    await gateway.restart(kill=True)
    async with gateway.http(gateway.relay) as relay:
        described = (await relay.get(one)).json()
        assert (described["userId"], described["title"], described["status"]) == (None, "nightly", "sleeping")
        assert (await relay.post(f"{one}/wake")).status_code == 200

        async def runs() -> bool:
            return bool((await relay.get(one)).json()["status"] == "running")

        await until(runs, "it runs again")
        branch = await relay.post(f"{one}/snapshots/newest/branch")
        assert (branch.status_code, branch.json()["userId"]) == (201, None)
        assert (await relay.delete(one)).json()["status"] == "archived"
        assert (await relay.post(one)).status_code == 200
        assert (await relay.delete(one, params={"purge": "1"})).status_code == 200
        assert (await relay.get(one)).status_code == 404
