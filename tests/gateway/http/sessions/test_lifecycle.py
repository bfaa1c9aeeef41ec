"""`/api/sandboxes` of a real gateway: the life of a session, who may lead it, and what a body may say."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.support.gateway import Gateway
from tests.support.waiting import files_with, until


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("lifecycle") / "data") as running:
        yield running


@pytest.fixture
async def ada(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client


async def comes_to(client: httpx.AsyncClient, session_id: str, *statuses: str) -> dict[str, Any]:
    """Wait until the session has one of these; its description."""

    async def look() -> dict[str, Any]:
        described: dict[str, Any] = (await client.get(f"/api/sandboxes/{session_id}/status")).json()
        assert described["status"] in statuses, described
        return described

    return await until(look, f"{session_id} {statuses}")


def refused(answer: httpx.Response, status: int, code: str) -> bool:
    """Whether this is a refusal in the one shape all refusals have."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error", "code"}
    assert isinstance(body["error"], str)
    assert (answer.status_code, body["code"]) == (status, code), answer.text
    return True


async def test_a_session_is_created_described_and_created_again(ada: httpx.AsyncClient) -> None:
    wish = {"title": "first", "metadata": {"team": "blue"}, "network": "none"}
    created = await ada.post("/api/sandboxes/life-1", json=wish)
    assert created.status_code == 201
    described = created.json()
    shape = "id userId status provider level incarnation viewers pending lastSeq lastActiveAt hasWorkspace title sync"
    assert {*shape.split(), "metadata"} <= set(described)
    assert (described["id"], described["userId"], described["title"]) == ("life-1", "ada", "first")
    assert (described["metadata"], described["provider"], described["level"]) == ({"team": "blue"}, "local", "trusted")
    again = await ada.post("/api/sandboxes/life-1")
    assert again.status_code == 200
    assert again.json()["title"] == "first"
    assert (await ada.get("/api/sandboxes/life-1")).json()["id"] == "life-1"


async def test_only_patch_changes_what_a_session_is_called(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    one = "/api/sandboxes/patch-1"
    wish = {"title": "first", "metadata": {"team": "blue"}, "sleepAfter": "15m"}
    assert (await ada.post(one, json=wish)).json()["sleepAfter"] == 900
    again = await ada.post(one, json={"title": "second", "metadata": {"team": "red"}, "sleepAfter": 5})
    assert again.status_code == 200
    shown = ("title", "metadata", "sleepAfter")
    first = {"title": "first", "metadata": {"team": "blue"}, "sleepAfter": 900}
    assert {name: again.json()[name] for name in shown} == first
    assert {name: (await ada.patch(one, json={})).json()[name] for name in shown} == first
    async with gateway.socket("/ws/events") as events:
        await events.recv()
        changed = await ada.patch(one, json={"title": "second"})
        assert changed.status_code == 200
        while json.loads(await events.recv()).get("sandbox", {}).get("title") != "second":
            pass
    assert {name: changed.json()[name] for name in shown} == first | {"title": "second"}
    for body, expected in [
        ({"metadata": {"n": 1}}, {"title": "second", "metadata": {"n": 1}, "sleepAfter": 900}),
        ({"sleepAfter": 90.5}, {"title": "second", "metadata": {"n": 1}, "sleepAfter": 90.5}),
        ({"title": None, "metadata": None}, {"title": None, "metadata": {}, "sleepAfter": 90.5}),
        ({"sleepAfter": None}, {"title": None, "metadata": {}, "sleepAfter": None}),
        ({"sleepAfter": "2h", "title": "last"}, {"title": "last", "metadata": {}, "sleepAfter": 7200}),
    ]:
        patched = await ada.patch(one, json=body)
        assert {name: patched.json()[name] for name in shown} == expected
    async with gateway.http(gateway.relay) as relay:
        assert (await relay.patch(one, json={"title": "by a service"})).status_code == 200
    await gateway.restart(kill=True)
    async with gateway.http() as client:
        assert (await client.get(one)).json()["title"] == "by a service"
        assert (await client.get(one)).json()["sleepAfter"] == 7200


BAD_TIMES: list[Any] = [0, -1, "0s", "never", "", "1w", True, [], 1e-9, 1e300, "9" * 20]
BAD_CHANGES: list[tuple[Any, str]] = [
    ({"agent": "cat"}, "unknown_member"),
    ({"userId": "eve"}, "unknown_member"),
    ({"title": ""}, "bad_member"),
    ({"title": "x" * 257}, "bad_member"),
    ({"metadata": []}, "bad_member"),
    ({"metadata": {"x": "y" * 17_000}}, "bad_member"),
    *[({"sleepAfter": value}, "bad_member") for value in BAD_TIMES],
]


@pytest.mark.parametrize(("body", "code"), BAD_CHANGES, ids=lambda value: str(value)[:40])
async def test_a_wrong_change_is_named_and_changes_nothing(ada: httpx.AsyncClient, body: Any, code: str) -> None:
    await ada.post("/api/sandboxes/patch-2", json={"title": "stays", "sleepAfter": "10m"})
    refused(await ada.patch("/api/sandboxes/patch-2", json={"title": "goes", **body}), 400, code)
    described = (await ada.get("/api/sandboxes/patch-2")).json()
    assert (described["title"], described["sleepAfter"], described["metadata"]) == ("stays", 600, {})


async def test_it_sleeps_wakes_pauses_resumes_and_ends(ada: httpx.AsyncClient) -> None:
    await ada.post("/api/sandboxes/life-2")
    running = await comes_to(ada, "life-2", "running")
    assert (await ada.post("/api/sandboxes/life-2/sleep")).json()["status"] == "sleeping"
    woken = (await ada.post("/api/sandboxes/life-2/wake")).json()
    assert woken["status"] in ("starting", "running")
    assert (await comes_to(ada, "life-2", "running"))["incarnation"] == running["incarnation"] + 1
    assert (await ada.post("/api/sandboxes/life-2/pause")).json()["status"] == "paused"
    refused(await ada.post("/api/sandboxes/life-2/wake"), 409, "paused")
    resumed = await ada.post("/api/sandboxes/life-2/resume", json={})
    assert resumed.status_code == 200
    await comes_to(ada, "life-2", "running")
    assert (await ada.post("/api/sandboxes/life-2/abort")).status_code == 200
    synced = await ada.post("/api/sandboxes/life-2/sync")
    assert synced.status_code == 200
    assert synced.json()["sync"]["generation"] >= 1
    assert (await ada.delete("/api/sandboxes/life-2")).json()["status"] == "archived"
    refused(await ada.post("/api/sandboxes/life-2/wake"), 409, "archived")
    revived = await ada.post("/api/sandboxes/life-2")
    assert revived.status_code == 200
    await comes_to(ada, "life-2", "running")


async def test_purge_leaves_nothing_to_find(ada: httpx.AsyncClient) -> None:
    await ada.post("/api/sandboxes/life-3")
    assert (await ada.delete("/api/sandboxes/life-3", params={"purge": "1"})).status_code == 200
    refused(await ada.get("/api/sandboxes/life-3/status"), 404, "unknown_session")
    refused(await ada.delete("/api/sandboxes/life-3", params={"purge": "yes"}), 400, "bad_parameter")


@pytest.mark.parametrize("purges", ["11", "10", "01", "00"])
async def test_one_of_two_that_delete_a_session_at_once_finds_it_deleted(ada: httpx.AsyncClient, purges: str) -> None:
    """The second was told 503: the session had ended under its hands."""
    one = f"/api/sandboxes/life-twice-{purges}"
    await ada.post(one)
    answers = await asyncio.gather(*(ada.delete(one, params={"purge": purge}) for purge in purges))
    codes = sorted(answer.status_code for answer in answers)
    assert codes in ([200, 200], [200, 404]), [answer.text for answer in answers]
    if purges == "11":
        assert codes == [200, 404]
    if "1" in purges:
        refused(await ada.get(one), 404, "unknown_session")
    else:
        assert (await ada.get(one)).json()["status"] == "archived"


OWNED_ROUTES = [
    ("GET", "/api/sandboxes/life-1"),
    ("GET", "/api/sandboxes/life-1/status"),
    ("PATCH", "/api/sandboxes/life-1"),
    ("POST", "/api/sandboxes/life-1/pause"),
    ("POST", "/api/sandboxes/life-1/resume"),
    ("POST", "/api/sandboxes/life-1/sleep"),
    ("POST", "/api/sandboxes/life-1/wake"),
    ("POST", "/api/sandboxes/life-1/abort"),
    ("POST", "/api/sandboxes/life-1/sync"),
    ("DELETE", "/api/sandboxes/life-1"),
    ("DELETE", "/api/sandboxes/life-1?purge=1"),
    ("GET", "/api/sessions/life-1/messages"),
    ("GET", "/logs/life-1"),
]


@pytest.mark.parametrize(("method", "path"), OWNED_ROUTES)
async def test_a_stranger_learns_nothing_on_any_route(gateway: Gateway, method: str, path: str) -> None:
    await gateway.create("life-1")
    async with gateway.http(gateway.bearer("eve")) as eve:
        answer = await eve.request(method, path)
        unknown = await eve.request(method, path.replace("life-1", "life-never"))
    assert refused(answer, 404, "unknown_session")
    assert answer.text == unknown.text, "a session of another is told apart from none"
    async with gateway.http() as ada:
        assert (await ada.get("/api/sandboxes/life-1")).json()["status"] != "archived"


@pytest.mark.parametrize("path", ["/files/slash-1", "/logs/slash-1"])
async def test_the_slash_behind_the_id_is_optional(gateway: Gateway, path: str) -> None:
    """Not by a redirect: few clients send their credentials along."""
    await gateway.create("slash-1")
    async with gateway.http() as ada:
        await comes_to(ada, "slash-1", "running")
        assert (await ada.post("/api/sandboxes/slash-1/sync")).status_code == 200
    expected = [(gateway.bearer(), 200), (gateway.admin, 200), (gateway.bearer("eve"), 404), ({}, 401)]
    for headers, status in expected:
        async with gateway.http(headers) as client:
            answers = [await client.get(each, params={"tail": 100}) for each in (path, f"{path}/")]
        assert [answer.status_code for answer in answers] == [status, status]
        assert answers[0].content == answers[1].content
        assert answers[0].headers["content-type"] == answers[1].headers["content-type"]
    async with gateway.http() as ada:
        for end in ("", "/"):
            refused(await ada.get(path.replace("slash-1", "-") + end), 400, "bad_session_id")


async def test_a_ticket_for_anothers_session_is_refused_like_one_for_none(gateway: Gateway) -> None:
    await gateway.create("life-1")
    async with gateway.http(gateway.bearer("eve")) as eve:
        refused(await eve.post("/api/tickets", json={"sessionId": "life-1"}), 404, "unknown_session")
        refused(await eve.post("/api/tickets", json={"sessionId": "life-never"}), 404, "unknown_session")


async def test_an_id_taken_by_another_user_is_a_conflict(gateway: Gateway) -> None:
    await gateway.create("life-1")
    async with gateway.http(gateway.bearer("eve")) as eve:
        refused(await eve.post("/api/sandboxes/life-1"), 409, "taken")


async def test_a_user_cannot_act_as_another(ada: httpx.AsyncClient) -> None:
    refused(await ada.post("/api/sandboxes/life-9", json={"userId": "eve"}), 403, "not_your_user")
    refused(await ada.get("/api/sandboxes", params={"userId": "eve"}), 403, "not_your_user")
    refused(await ada.get("/api/sandboxes/life-9"), 404, "unknown_session")


async def test_a_user_lists_their_own_and_a_service_everybodys(gateway: Gateway) -> None:
    await gateway.create("list-ada", "ada")
    await gateway.create("list-bob", "bob")
    seen: dict[str, set[str]] = {}
    for name, headers, query in [
        ("bob", gateway.bearer("bob"), {}),
        ("relay", gateway.relay, {}),
        ("admin of bob", gateway.admin, {"userId": "bob"}),
    ]:
        async with gateway.http(headers) as client:
            listed = (await client.get("/api/sandboxes", params=query)).json()["sandboxes"]
            seen[name] = {each["id"] for each in listed}
    assert seen["bob"] == seen["admin of bob"] == {"list-bob"}
    assert {"list-ada", "list-bob"} <= seen["relay"]


async def test_a_service_names_the_owner(gateway: Gateway) -> None:
    async with gateway.http(gateway.relay) as relay:
        created = await relay.post("/api/sandboxes/relay-1", json={"userId": "carol"})
    assert created.json()["userId"] == "carol"
    async with gateway.http(gateway.bearer("carol")) as carol:
        assert (await carol.get("/api/sandboxes/relay-1/status")).status_code == 200


BAD_BODIES: list[tuple[Any, str]] = [
    ({"colour": "red"}, "unknown_member"),
    ({"envVars": ["A"]}, "bad_member"),
    ({"envVars": {"1A": "x"}}, "bad_member"),
    ({"envVars": {"A-B": "x"}}, "bad_member"),
    ({"envVars": {"A\n": "x"}}, "bad_member"),
    ({"envVars": {"A": 1}}, "bad_member"),
    ({"envVars": {"A": "x\0y"}}, "bad_member"),
    ({"envVars": {f"A{n}": "x" for n in range(257)}}, "bad_member"),
    ({"envVars": {"A": "x" * 300_000}}, "bad_member"),
    ({"agent": ""}, "bad_member"),
    ({"agent": "'unclosed"}, "bad_member"),
    ({"agent": []}, "bad_member"),
    ({"agent": ["a", 1]}, "bad_member"),
    ({"agent": {"argv": "x"}}, "unknown_member"),
    ({"network": "all"}, "bad_member"),
    ({"network": 1}, "bad_member"),
    ({"repoUrl": 5}, "bad_member"),
    ({"repoBranch": "main"}, "bad_member"),
    ({"title": "x" * 257}, "bad_member"),
    ({"title": "a\x1bb"}, "bad_member"),
    ({"metadata": []}, "bad_member"),
    ({"metadata": {"x": "y" * 17_000}}, "bad_member"),
    ({"userId": ""}, "bad_member"),
    ({"sleepAfter": "soon"}, "bad_member"),
]


@pytest.mark.parametrize(("body", "code"), BAD_BODIES, ids=lambda value: str(value)[:40])
async def test_a_wrong_member_is_named_and_nothing_is_created(ada: httpx.AsyncClient, body: Any, code: str) -> None:
    refused(await ada.post("/api/sandboxes/life-bad", json=body), 400, code)
    refused(await ada.get("/api/sandboxes/life-bad"), 404, "unknown_session")


BAD_JSON = [
    b"{",
    b"[]",
    b'"x"',
    b"null",
    b"\xff\xfe",
    b'{"title":"a","title":"b"}',
    b'{"title":NaN}',
    b'{"title":"\\ud800"}',
    b'{"metadata":' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
    b'{"metadata":{' + b",".join(b'"k%d":1' % n for n in range(10_001)) + b"}}",
    b'{"title":' + b"9" * 4000 + b"}",
]


@pytest.mark.parametrize("body", BAD_JSON, ids=lambda body: repr(body[:24]))
async def test_what_is_no_sound_json_is_refused_without_a_traceback(ada: httpx.AsyncClient, body: bytes) -> None:
    answer = await ada.post("/api/sandboxes/life-bad", content=body)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error", "code"}
    assert "Traceback" not in answer.text


async def test_a_body_beyond_the_bound_is_refused_whether_its_length_is_declared_or_not(ada: httpx.AsyncClient) -> None:
    refused(await ada.post("/api/sandboxes/life-bad", content=b" " * ((1 << 20) + 1)), 413, "body_too_large")

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 32768

    refused(await ada.post("/api/sandboxes/life-bad", content=endless()), 413, "body_too_large")


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"repoUrl": "https://example.com/a.git"}, "network"),
        ({"repoUrl": "ext::sh -c id", "network": "outbound"}, "repoUrl"),
        ({"repoUrl": "https://127.0.0.1/a.git", "network": "outbound"}, "repoUrl"),
        ({"repoUrl": "https://example.com/a.git", "repoBranch": "-c core.x=y", "network": "outbound"}, "repoBranch"),
    ],
)
async def test_what_could_never_be_cloned_is_refused_at_once(
    ada: httpx.AsyncClient, wish: dict[str, str], says: str
) -> None:
    answer = await ada.post("/api/sandboxes/never", json=wish)
    assert refused(answer, 400, "bad_sandbox")
    assert says in answer.json()["error"]
    assert (await ada.get("/api/sandboxes/never/status")).status_code == 404


async def test_a_secret_is_in_no_answer_and_no_log(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    secret = "canary-3f9c1b7d"
    created = await ada.post("/api/sandboxes/life-env", json={"envVars": {"KEY": secret}})
    await comes_to(ada, "life-env", "running")
    wrong = await ada.post("/api/sandboxes/life-env2", json={"envVars": {"KEY": secret, "1": secret}})
    told = [created.text, wrong.text, (await ada.get("/api/sandboxes")).text, (await ada.get("/logs/life-env")).text]
    assert not any(secret in text for text in told)
    assert files_with(secret.encode(), gateway.data_dir) == []
    assert secret not in gateway.log


@pytest.mark.parametrize("session_id", ["-x", "a.b", "x" * 129, "%F0%9F%98%80", "a%00b", "%2e%2e", "a%2Fb", "a b"])
async def test_an_id_that_is_none_is_refused(ada: httpx.AsyncClient, session_id: str) -> None:
    answer = await ada.post(f"/api/sandboxes/{session_id}")
    assert answer.status_code in (400, 404)
    assert set(answer.json()) == {"error", "code"}
