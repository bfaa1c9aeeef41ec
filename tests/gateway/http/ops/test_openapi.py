"""`/openapi.json` says what is served: every route and nothing else, and what each really answers."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from starlette.routing import Route, WebSocketRoute

from gateway.app import build_house
from gateway.config.loading import load_settings
from gateway.config.settings import resolve_secrets
from gateway.routing.openapi import document
from gateway.routing.route import WS
from persistence.commit_plan import buried
from persistence.record import Record, Session
from persistence.sqlite.batch import bury
from persistence.sqlite.file import SqliteFile
from persistence.sqlite.store import SqliteStore
from tests.support.gateway import Gateway
from tests.support.page import make_page
from tests.support.routes import SPECS

DOCUMENT = document("1.2.3", SPECS)
OPERATIONS = [(spec.method, spec.path) for spec in SPECS if spec.method != WS]
WEBSOCKETS = [spec.path for spec in SPECS if spec.method == WS]


def strictly(schema: Any) -> Any:
    """The schema without room for members that it does not name: what is answered must be written down."""
    if isinstance(schema, list):
        return [strictly(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strictly(each) for name, each in schema.items()}
    return {**closed, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else closed


class Checked:
    """A client that compares every answer with the document, and remembers which operations it tried."""

    def __init__(self, client: httpx.AsyncClient, tried: set[tuple[str, str, int]]) -> None:
        self._client = client
        self._tried = tried

    async def __call__(self, method: str, path: str, expected: int, **request: Any) -> httpx.Response:
        """`path` as in the document; what stands in braces comes from `at`."""
        at = request.pop("at", {})
        answer = await self._client.request(method, path.format(**at), **request)
        assert answer.status_code == expected, answer.text
        described = DOCUMENT["paths"][path][method.lower()]["responses"]
        assert str(expected) in described, f"{method} {path} answers {expected}, which is not written down"
        self._tried.add((method, path, expected))
        if expected in (204, 303):
            return answer
        media = answer.headers["content-type"].split(";")[0]
        forms = described[str(expected)]["content"]
        schema = (forms.get(media) or forms["*/*"])["schema"]
        if media == "application/json":
            check(answer.json(), schema)
        return answer


def check(value: Any, schema: dict[str, Any]) -> None:
    whole = strictly({**schema, "components": DOCUMENT["components"]})
    validator = jsonschema.Draft202012Validator(whole, format_checker=jsonschema.FormatChecker())
    validator.validate(value)


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    home = tmp_path_factory.mktemp("openapi") / "data"
    home.mkdir(mode=0o700)
    await _bury_two(home / "holdfast.db")
    async with Gateway(home, DEMO="true") as running:
        yield running


async def _bury_two(path: Path) -> None:
    """Nothing that comes in by the doors is refused by SQLite for good: the letters are put there by hand."""
    async with SqliteStore(path) as store:
        await store.create(Session("dead", "ada", 0.0))
    async with SqliteFile(path, "sqlite") as file:
        for seq, payload in ((1, b'{"content":"x"}'), (2, b"\xff")):
            record = buried(Record("dead", seq, f"c{seq}", "user", "message", payload, 0.0))
            await file.write("bury", partial(_bury, record))


def _bury(record: Record, db: sqlite3.Connection) -> None:
    bury(db, 1, record, "no")


def test_every_served_route_is_written_down_and_nothing_else(tmp_path: Path) -> None:
    settings = load_settings({"HOLDFAST_DATA_DIR": str(tmp_path)})
    house = build_house(settings, resolve_secrets(settings))
    served, sockets = set(), set()
    for route in house.app.routes:
        if isinstance(route, WebSocketRoute):
            sockets.add(route.path)
        else:
            assert isinstance(route, Route)
            served |= {(method, route.path) for method in (route.methods or set()) - {"HEAD"}}
    assert served == set(OPERATIONS)
    assert sockets == set(WEBSOCKETS) == set(DOCUMENT["x-websockets"])
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {(method, path.replace(":path}", "}")) for method, path in OPERATIONS}


def test_the_document_is_in_order() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    used = set(json.dumps(DOCUMENT).split('"#/components/schemas/')[1:])
    assert {each.split('"')[0] for each in used} <= set(schemas), "every reference leads somewhere"
    names = [spec.name for spec in SPECS if spec.method != WS]
    assert len(names) == len(set(names))
    assert all(names)
    for path, methods in DOCUMENT["paths"].items():
        for described in methods.values():
            in_path = {each["name"] for each in described["parameters"] if each["in"] == "path"}
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert set(described["responses"]) - {"default"}
    assert DOCUMENT["paths"]["/internal/export"]["get"]["security"] == [{"service": []}]
    assert DOCUMENT["paths"]["/health"]["get"]["security"] == []


async def _credentials(ada: Checked, admin: Checked) -> None:
    one = "/api/credentials/{provider}"
    for who in (ada, admin):
        await who("PUT", one, 200, at={"provider": "openai"}, json={"type": "api", "key": "k"})
        await who("PUT", one, 400, at={"provider": "openai"}, json={"type": "api"})
        await who("PUT", one, 404, at={"provider": "nobody"}, json={"type": "api", "key": "k"})
        await who("GET", "/api/credentials", 200)
    await ada("GET", "/api/credentials", 403, params={"userId": "eva"})
    file = {"type": "agent", "name": "a", "extension": "md", "content": "x"}
    await ada("PUT", "/api/config", 200, json={"settings": {"a": 1}, "agents_md": "x", "files": [file]})
    await ada("PUT", "/api/config", 400, json={"agents_md": 5})
    await ada("GET", "/api/config", 200)
    await admin("GET", "/api/config", 400)
    await admin("POST", "/api/credentials/rotate", 200)
    await ada("DELETE", one, 200, at={"provider": "openai"})
    await ada("DELETE", one, 404, at={"provider": "openai"})
    await admin("DELETE", one, 200, at={"provider": "openai"})


async def test_what_each_route_answers_is_what_is_written_down(gateway: Gateway, tmp_path: Path) -> None:
    tried: set[tuple[str, str, int]] = set()
    async with (
        asyncio.timeout(120),
        gateway.http() as user,
        gateway.http(gateway.internal) as internal,
        gateway.http(gateway.admin) as boss,
        gateway.http({}) as stranger,
    ):
        ada, service, admin, nobody = (Checked(client, tried) for client in (user, internal, boss, stranger))
        assert (await nobody("GET", "/openapi.json", 200)).json()["openapi"] == "3.1.0"
        for path in ("/", "/health", "/ready"):
            await nobody("GET", path, 200)
        await _page(tmp_path, tried)
        await _signing_in(ada, admin, nobody, gateway)
        await admin("GET", "/metrics", 200)
        await nobody("GET", "/metrics", 401)
        for who in (ada, admin):
            await who("GET", "/api/providers", 200)
            await who("GET", "/api/agents", 200)
        for method in ("GET", "DELETE"):
            await admin(method, "/internal/orphans", 200)
        await _credentials(ada, admin)
        await _life(ada, nobody)
        await _conversation(ada, service)
        await _dead_letters(service)
        await _snapshots(ada, admin)
        await _terminals(ada)
        await _faults(ada)
        one = "/api/sandboxes/{id}"
        await ada("DELETE", one, 200, at={"id": "s"}, params={"purge": "1"})
        await ada("DELETE", one, 404, at={"id": "s"})
    succeeded = {(method, path) for method, path, status in tried if status < 400}
    assert succeeded == {(method, path.replace(":path}", "}")) for method, path in OPERATIONS}


async def _page(home: Path, tried: set[tuple[str, str, int]]) -> None:
    """A gateway in this process: the one beside it may have been started before any page was built."""
    settings = load_settings({"HOLDFAST_DATA_DIR": str(home / "data"), "HOLDFAST_LOCAL_LEVEL": "trusted"})
    app = build_house(settings, resolve_secrets(settings), page=make_page(home / "page")).app
    door = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=door, base_url="http://gateway", trust_env=False, verify=False) as client,
    ):
        nobody = Checked(client, tried)
        await nobody("GET", "/", 200)
        for name in ("index-a1.css", "index-b2.js", "fonts/mono-c3.woff2"):
            await nobody("GET", "/assets/{path}", 200, at={"path": name})
        await nobody("GET", "/assets/{path}", 404, at={"path": "nothing"})
        for path in ("/favicon.svg", "/licences.txt", "/manifest.webmanifest"):
            await nobody("GET", path, 200)


async def _signing_in(ada: Checked, admin: Checked, nobody: Checked, gateway: Gateway) -> None:
    made = (await admin("POST", "/api/links", 201, json={"userId": "ada", "email": "ada@example.com"})).json()
    await admin("POST", "/api/links", 400, json={"userId": "ada"})
    await ada("POST", "/api/links", 401, json={})
    code = made["url"].partition("=")[2]
    await nobody("GET", "/signin", 303, params={"link": code})
    await nobody("GET", "/signin", 503, params={"link": code}, headers={"Sec-Purpose": "prefetch"})
    page = {"Origin": gateway.url}
    await nobody("POST", "/api/signin", 200, headers=page, json={"token": gateway.token()})
    for status, token in ((400, "x" * 4001), (401, "x.y.z")):
        await nobody("POST", "/api/signin", status, headers=page, json={"token": token})
    await nobody("POST", "/api/signin", 403, json={"token": gateway.token()})
    await nobody("DELETE", "/api/signin", 204, headers=page)
    await nobody("DELETE", "/api/signin", 403)
    await ada("GET", "/api/me", 200)
    await nobody("GET", "/api/me", 401)
    await ada("POST", "/api/token", 201)
    await ada("POST", "/api/token", 400, json={"ttl": 1})


async def _life(ada: Checked, nobody: Checked) -> None:
    one, at = "/api/sandboxes/{id}", {"id": "s"}
    await ada("POST", one, 201, at=at, json={"title": "a title", "metadata": {"a": 1}})
    await ada("POST", one, 200, at=at, json={})
    await ada("POST", one, 400, at=at, json={"nothing": 1})
    await ada("POST", one, 403, at=at, json={"userId": "eve"})
    await ada("PATCH", one, 200, at=at, json={"title": "another", "sleepAfter": "1h"})
    await ada("PATCH", one, 400, at=at, json={"sleepAfter": "never"})
    await ada("PATCH", one, 200, at=at, json={"mode": "plan"})
    await ada("PATCH", one, 400, at=at, json={"mode": "bold"})
    await ada("PATCH", one, 404, at={"id": "nobody"}, json={})
    await ada("POST", one, 413, at=at, content=b" " * (1 << 20) + b"{}")
    await nobody("POST", one, 401, at=at)
    await ada("GET", "/api/sandboxes", 200)
    await ada("GET", "/api/sandboxes", 403, params={"userId": "eve"})
    for path in (one, f"{one}/status"):
        await ada("GET", path, 200, at=at)
        await ada("GET", path, 404, at={"id": "nobody"})
        await ada("GET", path, 400, at={"id": "-"})
    for step in ("sync", "abort", "sleep", "wake", "pause"):
        await ada("POST", f"{one}/{step}", 200, at=at)
        await ada("POST", f"{one}/{step}", 404, at={"id": "nobody"})
    await ada("POST", f"{one}/wake", 409, at=at)
    await ada("POST", f"{one}/resume", 200, at=at, json={"envVars": {"A": "b"}})
    await ada("GET", "/logs/{id}", 200, at=at)
    await ada("GET", "/logs/{id}", 400, at=at, params={"tail": "x"})
    await ada("POST", "/api/tickets", 201, json={"sessionId": "s"})
    await ada("POST", "/api/tickets", 404, json={"sessionId": "nobody"})


async def _conversation(ada: Checked, service: Checked) -> None:
    talk, at = "/internal/sessions/{id}/messages", {"id": "s"}
    for number in range(20):
        await service("POST", talk, 201, at=at, json={"role": "system", "type": "note", "content": {"n": number}})
    await service("POST", talk, 400, at=at, json={"role": "system"})
    await service("POST", talk, 404, at={"id": "nobody"}, json={"role": "system", "content": "x"})
    await service("GET", talk, 200, at=at, params={"follow": 1, "limit": 3})
    for client, path in ((service, talk), (ada, "/api/sessions/{id}/messages")):
        assert (await client("GET", path, 200, at=at)).json()["messages"]
        await client("GET", path, 200, at=at, params={"type": "note", "role": "system", "limit": 2})
        await client("GET", path, 400, at=at, params={"limit": 0})
        await client("GET", path, 404, at={"id": "nobody"})
    await _pending(ada, service)
    assert (await service("GET", "/internal/sessions", 200, params={"limit": 1})).json()["next"]
    await service("GET", "/internal/sessions", 400, params={"after": "-"})
    await service("GET", "/internal/sessions", 404, params={"after": "nobody"})
    await service("GET", "/internal/export", 200)
    await service("GET", "/internal/export", 400, params={"userId": ""})
    exported = await service("GET", "/internal/sessions/{id}/export", 200, at=at)
    for line in exported.text.splitlines():
        check(json.loads(line), {"$ref": "#/components/schemas/ExportLine"})
    await service("GET", "/internal/sessions/{id}/export", 404, at={"id": "nobody"})


async def _terminals(ada: Checked) -> None:
    one, jupyter, here = "/api/sandboxes/{id}", "/jupyter/{id}/api/terminals", {"id": "s"}
    named = {"id": "s", "name": "build"}
    await ada("POST", one + "/terminals/{name}", 201, at=named, json={"command": "cat", "cols": 100, "rows": 30})
    await ada("POST", one + "/terminals/{name}", 200, at=named, json={})
    await ada("POST", one + "/terminals/{name}", 400, at=named, json={"cols": 0, "rows": 1})
    await ada("POST", one + "/terminals/{name}/size", 200, at=named, json={"cols": 90, "rows": 20})
    await ada("GET", one + "/terminals", 200, at=here)
    assert (await ada("GET", one + "/status", 200, at=here)).json()["terminals"][0]["cols"] == 90
    await ada("DELETE", one + "/terminals/{name}", 200, at=named)
    await ada("DELETE", one + "/terminals/{name}", 404, at=named)
    made = (await ada("POST", jupyter, 200, at=here, json={})).json()
    await ada("GET", jupyter, 200, at=here)
    await ada("GET", jupyter + "/{name}", 200, at={"id": "s", "name": made["name"]})
    await ada("DELETE", jupyter + "/{name}", 204, at={"id": "s", "name": made["name"]})
    await ada("GET", "/tty/{id}/token", 200, at=here)
    share = (await ada("POST", one + "/shares", 201, at=here, json={"ttl": 60, "label": "for eva"})).json()
    await ada("GET", one + "/shares", 200, at=here)
    await ada("DELETE", one + "/shares/{number}", 200, at={**here, "number": share["number"]})
    await ada("DELETE", one + "/shares/{number}", 404, at={**here, "number": share["number"]})


async def _faults(ada: Checked) -> None:
    fault, at = "/api/sandboxes/{id}/demo/{what}", {"id": "s"}
    await ada("POST", fault, 200, at={**at, "what": "cut"})
    await ada("POST", fault, 200, at={**at, "what": "pause-store"}, json={"seconds": 1})
    await ada("POST", fault, 400, at={**at, "what": "pause-store"}, json={"seconds": 61})
    await ada("POST", fault, 400, at={**at, "what": "explode"})
    await ada("POST", fault, 404, at={"id": "nobody", "what": "cut"})
    await ada("POST", fault, 200, at={**at, "what": "kill-bridge"})


async def _snapshots(ada: Checked, admin: Checked) -> None:
    every, at = "/api/sandboxes/{id}/snapshots", {"id": "s", "generation": "newest"}
    one = f"{every}/{{generation}}"
    await ada("POST", "/api/sandboxes/{id}/sync", 200, at=at)
    assert (await ada("GET", every, 200, at=at)).json()["newest"]
    await ada("GET", every, 404, at={"id": "nobody"})
    for path in (one, f"{one}/diff", f"{one}/export"):
        await ada("GET", path, 200, at=at)
        await ada("GET", path, 404, at={**at, "generation": 99})
    await ada("POST", f"{one}/branch", 201, at=at)
    await ada("POST", f"{one}/restore", 201, at=at)
    await ada("POST", f"{one}/restore", 409, at=at, json={"inPlace": True})
    await ada("POST", f"{one}/restore", 400, at=at, json={"inPlace": 1})
    await ada("POST", f"{one}/release", 200, at=at)
    verified = await ada("POST", f"{every}/verify", 200, at=at)
    collected = await admin("POST", "/internal/snapshots/gc", 200, params={"dryRun": "1"})
    for lines, name in ((verified, "VerifyLine"), (collected, "CollectLine")):
        for line in lines.text.splitlines():
            check(json.loads(line), {"$ref": f"#/components/schemas/{name}"})
    await ada("POST", "/internal/snapshots/gc", 401)
    files = "/files/{id}/{path}"
    for query in ({"root": "agent"}, {"root": "workspace"}, {"source": "synced"}):
        assert (await ada("GET", files, 200, at={"id": "s", "path": ""}, params=query)).json()["entries"] is not None
    await ada("GET", files, 404, at={"id": "s", "path": "nothing"})
    await ada("GET", files, 400, at={"id": "s", "path": ""}, params={"root": "x"})


async def _pending(ada: Checked, service: Checked) -> None:
    one, at = "/api/sandboxes/{id}", {"id": "s"}
    await ada("POST", f"{one}/pause", 200, at=at)
    waits = {"role": "user", "content": "later", "deliver": True}
    seq = (await service("POST", "/internal/sessions/{id}/messages", 201, at=at, json=waits)).json()["seq"]
    [shown] = (await ada("GET", f"{one}/pending", 200, at=at)).json()["messages"]
    assert (shown["seq"], shown["content"]) == (seq, "later")
    await ada("GET", f"{one}/pending", 404, at={"id": "nobody"})
    named = {**at, "seq": str(seq)}
    await ada("POST", f"{one}/pending/{{seq}}/extend", 200, at=named, json={"seconds": 900})
    await ada("POST", f"{one}/pending/{{seq}}/extend", 400, at=named, json={"seconds": 0})
    await ada("DELETE", f"{one}/pending/{{seq}}", 200, at=named)
    await ada("DELETE", f"{one}/pending/{{seq}}", 409, at=named)
    for unknown in ("99999", "x"):
        await ada("DELETE", f"{one}/pending/{{seq}}", 404, at={**at, "seq": unknown})
    await ada("POST", f"{one}/resume", 200, at=at, json={})


async def _dead_letters(service: Checked) -> None:
    letters = "/internal/dead-letters"
    listed = (await service("GET", letters, 200)).json()["deadLetters"]
    assert [letter["seq"] for letter in listed] == [1, 2]
    await service("GET", letters, 400, params={"limit": "x"})
    for letter in listed:
        await service("GET", f"{letters}/{{number}}", 200, at={"number": letter["number"]})
    await service("GET", f"{letters}/{{number}}", 404, at={"number": 99})
    await service("POST", f"{letters}/{{number}}/retry", 200, at={"number": 1})
    await service("POST", f"{letters}/{{number}}/retry", 404, at={"number": 99})
    await service("DELETE", f"{letters}/{{number}}", 200, at={"number": 2})
    await service("DELETE", f"{letters}/{{number}}", 404, at={"number": 2})
