"""The routes of credentials, at a real gateway: who may, what is refused, and that no value ever comes out."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.vault.credential import LONGEST_KEY
from tests.gateway.vault.test_credential import pem
from tests.support.gateway import Gateway
from tests.support.waiting import until

CANARY = "sk-canary-0123456789-abcdefghij"
ALL, OPENAI = "/api/credentials", "/api/credentials/openai"
API = {"type": "api", "key": CANARY}


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("credentials") / "data", LOG_LEVEL="debug") as running:
        yield running


@pytest.fixture
async def ada(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client
        for each in (await client.get(ALL)).json()["credentials"]:
            await client.delete(f"{ALL}/{each['provider']}")


@pytest.fixture
async def admin(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http(gateway.admin) as client:
        yield client
        for each in (await client.get(ALL)).json()["credentials"]:
            await client.delete(f"{ALL}/{each['provider']}")


def told(answer: httpx.Response) -> tuple[int, str]:
    assert CANARY not in answer.text
    return answer.status_code, answer.json()["code"]


async def names(client: httpx.AsyncClient, **query: str) -> dict[str, tuple[str, bool]]:
    answer = await client.get(ALL, params=query)
    assert answer.status_code == 200, answer.text
    return {each["provider"]: (each["type"], each["everybody"]) for each in answer.json()["credentials"]}


async def test_a_credential_is_set_listed_and_removed_and_never_shown(ada: httpx.AsyncClient) -> None:
    kept = await ada.put(OPENAI, json=API)
    assert kept.status_code == 200
    assert re.fullmatch(
        r'{"provider":"openai","type":"api","setAt":"[0-9T:.Z-]+","everybody":false,"problem":null}', kept.text
    )
    listed = await ada.get(ALL)
    assert listed.json()["credentials"] == [kept.json()]
    assert {"anthropic", "openai", "google", "github"} <= set(listed.json()["providers"])
    assert CANARY not in listed.text
    assert (await ada.delete(OPENAI)).json() == {"provider": "openai"}
    assert told(await ada.delete(OPENAI)) == (404, "no_credential")
    assert await names(ada) == {}


async def test_each_type_is_kept(ada: httpx.AsyncClient) -> None:
    for provider, body in {
        "anthropic": {"type": "oauth", "access": CANARY, "refresh": "r", "expires": 1_900_000_000_000},
        "gemini": API,
        "github": {"type": "app", "appId": "12345", "privateKey": pem()},
        "gitlab": API,
    }.items():
        assert (await ada.put(f"{ALL}/{provider}", json=body)).status_code == 200, provider
    assert await names(ada) == {
        "anthropic": ("oauth", False),
        "github": ("app", False),
        "gitlab": ("api", False),
        "google": ("api", False),
    }


async def test_services_name_the_user_and_the_api_token_means_everybody(
    gateway: Gateway, ada: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    assert (await admin.put(OPENAI, json=API, params={"userId": "ada"})).status_code == 200
    assert (await admin.put(f"{ALL}/anthropic", json=API)).status_code == 200
    assert (await admin.put(OPENAI, json=API)).status_code == 200
    assert await names(ada) == {"openai": ("api", False), "anthropic": ("api", True)}
    assert await names(admin, userId="ada") == await names(ada)
    assert await names(admin) == {"openai": ("api", True), "anthropic": ("api", True)}
    async with gateway.http(gateway.bearer("eva")) as eva:
        assert await names(eva) == {"openai": ("api", True), "anthropic": ("api", True)}
        assert told(await eva.delete(OPENAI)) == (404, "no_credential")
    async with gateway.http({"X-Relay-Secret": gateway.secret("relay_secret")}) as relay:
        for answer in (await relay.put(OPENAI, json=API), await relay.get(ALL), await relay.delete(OPENAI)):
            assert told(answer) == (403, "not_yours")
        assert await names(relay, userId="ada") == await names(ada)
        assert (await relay.delete(OPENAI, params={"userId": "ada"})).status_code == 200


async def test_a_user_reaches_nobody_elses(gateway: Gateway, ada: httpx.AsyncClient, admin: httpx.AsyncClient) -> None:
    await ada.put(OPENAI, json=API)
    async with gateway.http(gateway.bearer("eva")) as eva:
        for name in ("ada", "", "Eva", "eva ", "*", "%"):
            for answer in (
                await eva.get(ALL, params={"userId": name}),
                await eva.put(OPENAI, json=API, params={"userId": name}),
                await eva.delete(OPENAI, params={"userId": name}),
            ):
                assert told(answer) in ((403, "not_your_user"), (400, "bad_parameter"))
        twice = await eva.get(f"{ALL}?userId=eva&userId=ada")
        assert told(twice) == (400, "bad_parameter")
        assert told(await eva.post(f"{ALL}/rotate"))[0] == 401
        assert await names(eva) == {}
    assert await names(ada) == {"openai": ("api", False)}


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("nobody", 404), ("OpenAI", 404), ("openai%20", 404), ("op%C3%A9nai", 404), ("x" * 3000, 404),
        ("openai%00", 400), ("..", 400), ("%2e%2e", 400), ("a%2fb", 400), ("openai/x", 404), ("'; drop table", 404),
        ("__proto__", 404), ("git", 404), ("rotate", 404),
    ],
)  # fmt: skip
async def test_names_that_no_provider_has_are_refused(ada: httpx.AsyncClient, name: str, status: int) -> None:
    answer = await ada.put(f"{ALL}/{name}", json=API)
    assert answer.status_code == status or (status == 400 and answer.status_code in (404, 405))
    assert CANARY not in answer.text
    assert await names(ada) == {}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "bad_member"),
        ({"type": "api"}, "bad_member"),
        ({"type": "other", "key": CANARY}, "bad_member"),
        ({"type": ["api"], "key": CANARY}, "bad_member"),
        ({"type": "api", "key": {"canary": CANARY}}, "bad_member"),
        ({"type": "api", "key": f"{CANARY} "}, "bad_member"),
        ({"type": "api", "key": f"{CANARY}\r\nx: y"}, "bad_member"),
        ({"type": "api", "key": f"{CANARY}\0"}, "bad_member"),
        ({"type": "api", "key": f"{CANARY}ü"}, "bad_member"),
        ({"type": "api", "key": CANARY * LONGEST_KEY}, "body_too_large"),
        ({"type": "api", "key": "x" * (LONGEST_KEY + 1)}, "bad_member"),
        ({"type": "api", "key": CANARY, "access": "a"}, "bad_member"),
        ({"type": "api", "key": CANARY, CANARY: 1}, "unknown_member"),
        ({"type": "oauth", "access": CANARY, "expires": "soon"}, "bad_member"),
        ({"type": "oauth", "access": CANARY, "expires": -5}, "bad_member"),
        ({"type": "oauth", "refresh": CANARY}, "bad_member"),
        ({"type": "app", "appId": "1", "privateKey": CANARY}, "bad_member"),
        ({"type": "app", "appId": "1", "privateKey": None}, "bad_member"),
    ],
)
async def test_bodies_that_are_none_are_refused_without_their_values(
    ada: httpx.AsyncClient, body: dict[str, Any], code: str
) -> None:
    answer = await ada.put(f"{ALL}/github", json=body)
    assert answer.json()["code"] == code
    assert answer.status_code == (413 if code == "body_too_large" else 400)
    assert code == "unknown_member" or CANARY not in answer.text
    assert await names(ada) == {}


async def test_what_is_no_json_is_refused(ada: httpx.AsyncClient) -> None:
    for content in (
        b"",
        b"[]",
        b"{",
        b'{"type":"api","type":"api","key":"k"}',
        b'{"type":"api","key":"\\ud800"}',
        b"\xff",
    ):
        assert (await ada.put(OPENAI, content=content)).status_code == 400, content
    assert await names(ada) == {}


async def test_only_git_hosts_have_apps(ada: httpx.AsyncClient) -> None:
    answer = await ada.put(OPENAI, json={"type": "app", "appId": "1", "privateKey": pem()})
    assert told(answer) == (400, "bad_member")
    assert "no git host" in answer.text


async def test_a_value_is_in_no_table_log_or_metric(
    gateway: Gateway, ada: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    assert (await ada.put(OPENAI, json=API)).status_code == 200
    assert (await admin.put(f"{ALL}/anthropic", json={"type": "oauth", "access": CANARY, "refresh": CANARY})).is_success
    assert told(await ada.put(f"{ALL}/github", json={"type": "app", "appId": "1", "privateKey": CANARY}))[0] == 400
    shown = (await admin.get("/metrics")).text + (await ada.get("/api/me")).text + gateway.log
    assert CANARY not in shown
    everything = b"".join(path.read_bytes() for path in gateway.data_dir.rglob("*") if path.is_file())
    assert b"credentials" in everything
    assert CANARY.encode() not in everything
    with closing(sqlite3.connect(gateway.data_dir / "holdfast.db")) as db:
        assert db.execute("SELECT count(*) FROM credentials").fetchone() == (2,)


async def test_what_was_answered_200_is_there_after_kill_9(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        async with gateway.http() as ada:
            assert (await ada.put(OPENAI, json=API)).status_code == 200
        await gateway.kill()
        await gateway.start()
        async with gateway.http() as ada:
            assert await names(ada) == {"openai": ("api", False)}
            assert (await ada.delete(OPENAI)).status_code == 200
        await gateway.kill()
        await gateway.start()
        async with gateway.http() as ada:
            assert await names(ada) == {}


async def test_the_key_is_replaced_by_the_api_token_while_the_gateway_runs(
    gateway: Gateway, ada: httpx.AsyncClient
) -> None:
    await ada.put(OPENAI, json=API)
    path = gateway.data_dir / "secrets" / "vault_key"
    before = path.read_text()
    async with gateway.http(gateway.admin) as admin:
        assert (await admin.post(f"{ALL}/rotate")).json() == {"sealed": 1}
    assert path.read_text() != before
    (found,) = (await ada.get(ALL)).json()["credentials"]
    assert found["problem"] is None


async def test_a_lost_key_is_told_at_the_start_and_in_the_list_and_changes_nothing(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        async with gateway.http() as ada:
            await ada.put(OPENAI, json=API)
        await gateway.kill()
        path = gateway.data_dir / "secrets" / "vault_key"
        kept = path.rename(tmp_path / "kept")
        await gateway.start()
        await until(lambda: "vault.wrong_key" in gateway.log)
        async with gateway.http() as ada:
            (found,) = (await ada.get(ALL)).json()["credentials"]
            assert "another vault key" in found["problem"]
        await gateway.kill()
        kept.rename(path)
        await gateway.start()
        async with gateway.http() as ada:
            (found,) = (await ada.get(ALL)).json()["credentials"]
            assert found["problem"] is None
