"""`/api/sandboxes/{id}/terminals` of a real gateway, and what the clients of other servers ask for first."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import httpx
import pytest

from tests.gateway.http.sessions.test_lifecycle import comes_to, refused
from tests.support.gateway import Gateway

SHAPE = {
    "name", "epoch", "base", "offset", "cols", "rows", "viewers", "idleSeconds", "alive", "exit", "title", "command",
}  # fmt: skip
ALL = "/api/sandboxes/mine/terminals"
JUPYTER = "/jupyter/mine/api/terminals"
NUMBERS = count(1)


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("terminals") / "data") as running:
        await running.create("mine")
        async with running.http() as client:
            await comes_to(client, "mine", "running")
        yield running


@pytest.fixture
async def ada(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"t{next(NUMBERS)}"


async def listed(client: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    answer = await client.get(ALL)
    assert answer.status_code == 200
    return {each["name"]: each for each in answer.json()["terminals"]}


async def test_a_terminal_is_made_found_resized_and_ended(ada: httpx.AsyncClient, name: str) -> None:
    wish = {"command": ["cat"], "cols": 100, "rows": 30}
    made = await ada.post(f"{ALL}/{name}", json=wish)
    assert made.status_code == 201
    assert set(made.json()) == SHAPE
    assert (made.json()["command"], made.json()["cols"], made.json()["rows"]) == (["cat"], 100, 30)
    assert (made.json()["viewers"], made.json()["alive"], made.json()["exit"]) == (0, True, None)
    again = await ada.post(f"{ALL}/{name}", json={"command": "cat"})
    assert (again.status_code, again.json()["epoch"]) == (200, made.json()["epoch"])
    refused(await ada.post(f"{ALL}/{name}", json={"command": ["ls"]}), 409, "conflict")
    assert (await listed(ada))[name]["epoch"] == made.json()["epoch"]
    resized = await ada.post(f"{ALL}/{name}/size", json={"cols": 70, "rows": 20})
    assert (resized.status_code, resized.json()["cols"], resized.json()["rows"]) == (200, 70, 20)
    ended = await ada.delete(f"{ALL}/{name}")
    assert (ended.status_code, ended.json()["name"]) == (200, name)
    assert name not in await listed(ada)
    refused(await ada.delete(f"{ALL}/{name}"), 404, "unknown_terminal")


async def test_a_terminal_has_its_own_environment_and_directory(
    gateway: Gateway, ada: httpx.AsyncClient, name: str
) -> None:
    command = "sh -c 'mkdir -p deep; pwd; echo $COLOUR; exec cat'"
    made = await ada.post(f"{ALL}/{name}", json={"command": command, "envVars": {"COLOUR": "gr\u00fcn"}, "cwd": "/"})
    assert made.status_code == 201
    async with gateway.socket("/terminal/mine", name=name) as socket:
        seen = ""
        while "grün" not in seen:
            seen += str(await socket.recv())
    assert "/\r\n" in seen
    assert "grün" not in (await ada.get(ALL)).text
    await ada.delete(f"{ALL}/{name}")


async def test_how_a_program_ended_is_listed_and_making_it_again_runs_it(ada: httpx.AsyncClient, name: str) -> None:
    made = await ada.post(f"{ALL}/{name}", json={"command": ["sh", "-c", "exit 3"]})
    assert made.status_code == 201
    async with asyncio.timeout(30):
        while (found := (await listed(ada))[name])["alive"]:
            pass
    assert found["exit"] == {"code": 3, "signal": None}
    again = await ada.post(f"{ALL}/{name}")
    assert again.status_code == 201
    assert again.json()["command"] == ["sh", "-c", "exit 3"]
    assert again.json()["epoch"] != made.json()["epoch"]
    await ada.delete(f"{ALL}/{name}")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/-bad", {}, 400, "bad_name"),
        ("POST", "/" + "x" * 65, {}, 400, "bad_name"),
        ("POST", "/a.b", {}, 400, "bad_name"),
        ("DELETE", "/a%20b", None, 400, "bad_name"),
        ("POST", "/ok", {"cols": 80}, 400, "bad_member"),
        ("POST", "/ok", {"cols": 0, "rows": 24}, 400, "bad_member"),
        ("POST", "/ok", {"cols": 80, "rows": 1001}, 400, "bad_member"),
        ("POST", "/ok", {"cols": True, "rows": True}, 400, "bad_member"),
        ("POST", "/ok", {"cols": "80", "rows": "24"}, 400, "bad_member"),
        ("POST", "/ok", {"command": []}, 400, "bad_member"),
        ("POST", "/ok", {"command": [""]}, 400, "bad_member"),
        ("POST", "/ok", {"command": "'"}, 400, "bad_member"),
        ("POST", "/ok", {"command": ["a\0b"]}, 400, "bad_member"),
        ("POST", "/ok", {"command": [7]}, 400, "bad_member"),
        ("POST", "/ok", {"envVars": {"A B": "x"}}, 400, "bad_member"),
        ("POST", "/ok", {"envVars": {"A": 1}}, 400, "bad_member"),
        ("POST", "/ok", {"cwd": 1}, 400, "bad_member"),
        ("POST", "/ok", {"cwd": "a\0"}, 400, "bad_member"),
        ("POST", "/ok", {"cwd": "x" * 4097}, 400, "bad_member"),
        ("POST", "/ok", {"color": 1}, 400, "unknown_member"),
        ("POST", "/ok", {"command": ["/no/such/program"]}, 400, "start_failed"),
        ("POST", "/ok", {"cwd": "no/such/directory"}, 400, "start_failed"),
        ("POST", "/nobodys/size", {"cols": 80, "rows": 24}, 404, "unknown_terminal"),
        ("POST", "/nobodys/size", {}, 400, "bad_member"),
        ("POST", "/nobodys/size", {"cols": 80, "rows": 24, "x": 1}, 400, "unknown_member"),
        ("DELETE", "/nobodys", None, 404, "unknown_terminal"),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_made(
    ada: httpx.AsyncClient, method: str, path: str, body: Any, status: int, code: str
) -> None:
    before = sorted(await listed(ada))
    refused(await ada.request(method, ALL + path, json=body), status, code)
    assert sorted(await listed(ada)) == before


async def test_there_are_only_so_many(ada: httpx.AsyncClient, gateway: Gateway) -> None:
    await gateway.create("crowd")
    await comes_to(ada, "crowd", "running")
    for number in range(16):
        made = await ada.post(f"/api/sandboxes/crowd/terminals/n{number}", json={"command": ["cat"]})
        assert made.status_code == 201
    refused(await ada.post("/api/sandboxes/crowd/terminals/n16", json={"command": ["cat"]}), 429, "too_many")
    assert (await ada.delete("/api/sandboxes/crowd/terminals/n3")).status_code == 200
    assert (await ada.post("/api/sandboxes/crowd/terminals/n16", json={"command": ["cat"]})).status_code == 201


async def test_listing_wakes_nobody_and_making_one_does(ada: httpx.AsyncClient, gateway: Gateway) -> None:
    await gateway.create("sleeper")
    await comes_to(ada, "sleeper", "running")
    await ada.post("/api/sandboxes/sleeper/terminals/main")
    await ada.post("/api/sandboxes/sleeper/sleep")
    for path in ("/api/sandboxes/sleeper/terminals", "/jupyter/sleeper/api/terminals"):
        assert (await ada.get(path)).json() in ({"terminals": []}, [])
    refused(await ada.delete("/api/sandboxes/sleeper/terminals/main"), 404, "unknown_terminal")
    refused(
        await ada.post("/api/sandboxes/sleeper/terminals/main/size", json={"cols": 9, "rows": 9}),
        404,
        "unknown_terminal",
    )
    refused(await ada.get("/jupyter/sleeper/api/terminals/main"), 404, "unknown_terminal")
    assert (await ada.get("/api/sandboxes/sleeper/status")).json()["status"] == "sleeping"
    assert (await ada.post("/api/sandboxes/sleeper/terminals/main")).status_code == 201
    assert (await ada.get("/api/sandboxes/sleeper/status")).json()["status"] == "running"
    await ada.post("/api/sandboxes/sleeper/pause")
    refused(await ada.post("/api/sandboxes/sleeper/terminals/main"), 409, "paused")
    refused(await ada.post("/jupyter/sleeper/api/terminals"), 409, "paused")
    await ada.delete("/api/sandboxes/sleeper")
    refused(await ada.post("/api/sandboxes/sleeper/terminals/main"), 409, "archived")


async def test_a_stranger_finds_no_terminals(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    await ada.post(f"{ALL}/main")
    async with gateway.http(gateway.bearer("eva")) as eva:
        for method, path in (
            ("GET", ALL), ("POST", f"{ALL}/main"), ("DELETE", f"{ALL}/main"), ("POST", f"{ALL}/main/size"),
            ("GET", JUPYTER), ("POST", JUPYTER), ("GET", f"{JUPYTER}/main"), ("DELETE", f"{JUPYTER}/main"),
            ("GET", "/tty/mine/token"), ("POST", "/api/sandboxes/mine/shares"),
        ):  # fmt: skip
            refused(await eva.request(method, path), 404, "unknown_session")
    assert (await listed(ada))["main"]["alive"]


async def test_services_lead_terminals_like_the_rest_of_a_sandbox(gateway: Gateway) -> None:
    for headers in (gateway.admin, gateway.relay):
        async with gateway.http(headers) as service:
            assert (await service.post(f"{ALL}/service", json={"command": ["cat"]})).status_code == 201
            assert "service" in await listed(service)
            assert (await service.delete(f"{ALL}/service")).status_code == 200
            assert (await service.get(JUPYTER)).status_code == 401


# Jupyter, ttyd


async def test_jupyters_rest_makes_lists_finds_and_ends(ada: httpx.AsyncClient) -> None:
    made = await ada.post(JUPYTER)
    assert made.status_code == 200
    assert set(made.json()) == {"name", "last_activity"}
    name = made.json()["name"]
    assert name.isdecimal()
    active = datetime.fromisoformat(made.json()["last_activity"].replace("Z", "+00:00"))
    assert abs((datetime.now(UTC) - active).total_seconds()) < 3600
    other = (await ada.post(JUPYTER, json={})).json()["name"]
    assert other != name
    named = await ada.post(JUPYTER, json={"name": "lab", "cwd": ""})
    assert named.json()["name"] == "lab"
    assert {name, other, "lab"} <= {each["name"] for each in (await ada.get(JUPYTER)).json()}
    assert (await ada.get(f"{JUPYTER}/{name}")).json()["name"] == name
    for each in (name, other, "lab"):
        ended = await ada.delete(f"{JUPYTER}/{each}")
        assert (ended.status_code, ended.content) == (204, b"")
        refused(await ada.get(f"{JUPYTER}/{each}"), 404, "unknown_terminal")
        refused(await ada.delete(f"{JUPYTER}/{each}"), 404, "unknown_terminal")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": 7}, "bad_member"),
        ({"name": "a b"}, "bad_name"),
        ({"cwd": 7}, "bad_member"),
        ({"x": 1}, "unknown_member"),
    ],
)
async def test_jupyters_rest_refuses_what_cannot_be(ada: httpx.AsyncClient, body: Any, code: str) -> None:
    refused(await ada.post(JUPYTER, json=body), 400, code)


async def test_ttyds_client_gets_a_token_that_says_nothing(ada: httpx.AsyncClient) -> None:
    answer = await ada.get("/tty/mine/token")
    assert (answer.status_code, answer.json()) == (200, {"token": ""})
