"""Signing in to a running gateway: by the link it printed, from where it is reached, without a trace in its log."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.gateway.cli.test_main import run
from tests.support.gateway import Gateway

LINK = re.compile(r"http://\S+/signin\?link=(\w+)")


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    home = tmp_path_factory.mktemp("signin")
    async with Gateway(home / "data", LOG_LEVEL="debug", TRUSTED_PROXIES="127.0.0.1") as running:
        yield running


async def opened(gateway: Gateway, link: str, **headers: str) -> httpx.Response:
    async with gateway.http(headers) as browser:
        return await browser.get(link)


async def fresh(gateway: Gateway, user: str = "ada") -> str:
    async with gateway.http(gateway.admin) as operator:
        made = await operator.post("/api/links", json={"userId": user, "email": f"{user}@example.com"})
    assert made.status_code == 201, made.text
    link: str = made.json()["url"]
    assert link.startswith(f"{gateway.url}/signin?link=")
    return link


async def test_the_first_line_of_serve_is_the_link_to_open(gateway: Gateway) -> None:
    first = gateway.printed.splitlines()[0]
    found = LINK.search(first)
    assert found is not None, first
    assert found[0].startswith(gateway.url)
    answer = await opened(gateway, found[0])
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    async with gateway.http({"cookie": f"session={answer.cookies['session']}"}) as browser:
        me = (await browser.get("/api/me")).json()
    login = run("url", "--json", data=gateway.data_dir)
    assert me["userId"] in gateway.printed
    assert me["email"] == f"{me['userId']}@localhost"
    assert login.returncode == 0, login.stderr


async def test_from_the_link_to_an_open_socket_as_the_page_does_it(gateway: Gateway) -> None:
    cookie = {"cookie": f"session={(await opened(gateway, await fresh(gateway))).cookies['session']}"}
    page = {**cookie, "origin": gateway.url}
    async with gateway.http(page) as browser:
        assert (await browser.post("/api/sandboxes/mine")).status_code == 201
        short = (await browser.post("/api/token")).json()["token"]
        ticket = (await browser.post("/api/tickets", json={"sessionId": "mine"})).json()["ticket"]
    address = f"ws{gateway.url.removeprefix('http')}/ws/v2?sessionId=mine"
    own = {"Origin": gateway.url}
    ways = [
        connect(address, subprotocols=["holdfast.chat.v2", f"token.{short}"], additional_headers=own, proxy=None),  # type: ignore[list-item]
        connect(f"{address}&ticket={ticket}", additional_headers=own, proxy=None),
        connect(address, additional_headers={**own, "Cookie": cookie["cookie"]}, proxy=None),
    ]
    for way in ways:
        async with way as socket, asyncio.timeout(20):
            assert '"type":"welcome"' in str(await socket.recv())
    with pytest.raises(InvalidStatus) as refusal:
        await connect(address, additional_headers={"Origin": "https://evil.example", **cookie}, proxy=None)
    assert refusal.value.response.status_code == 403


async def test_behind_a_trusted_proxy_the_cookie_is_for_https_alone(gateway: Gateway) -> None:
    told = {"x-forwarded-proto": "https", "x-forwarded-host": "gw.example"}
    async with gateway.http({**gateway.admin, **told}) as operator:
        made = (await operator.post("/api/links", json={"userId": "ada", "email": "e"})).json()
    assert made["url"].startswith("https://gw.example/signin?link=")
    link = made["url"].replace("https://gw.example", gateway.url)
    assert "; Secure" in (await opened(gateway, link, **told)).headers["set-cookie"]
    assert "Secure" not in (await opened(gateway, await fresh(gateway))).headers["set-cookie"]
    async with gateway.http({**told, "origin": "https://gw.example"}) as page:
        assert "; Secure" in (await page.delete("/api/signin")).headers["set-cookie"]
        assert (await page.post("/api/signin", json={"token": gateway.token()})).status_code == 200


async def test_what_anybody_else_says_of_the_line_does_not_count(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        answer = await opened(gateway, await fresh(gateway), **{"x-forwarded-proto": "https"})
        assert answer.headers["location"] == "/"
        assert "Secure" not in answer.headers["set-cookie"]


async def test_no_code_and_no_token_is_ever_logged(gateway: Gateway) -> None:
    printed = LINK.search(gateway.printed)
    assert printed is not None
    codes, tokens = [printed[1]], [gateway.token("eva")]
    for headers in ({}, {"sec-purpose": "prefetch"}, {"cookie": "session=x.y.z"}):
        link = await fresh(gateway)
        codes.append(link.partition("=")[2])
        for target in (link, link, f"{link}&link=2", link.replace("/signin", "/signin/"), link.replace("/s", "//s")):
            answer = await opened(gateway, target, **headers)
            assert codes[-1] not in answer.text + str(answer.headers)
            tokens += [answer.cookies["session"]] if "session" in answer.cookies else []
    async with gateway.http({"origin": gateway.url}) as page:
        for token in (tokens[0], tokens[0][:-3], tokens[0] + "."):
            await page.post("/api/signin", json={"token": token})
        await page.put("/api/signin", params={"link": codes[-1], "token": tokens[0]})
    log = gateway.log
    assert '"path":"/signin"' in log, "requests are logged at all"
    for secret in (*codes, *tokens, *(token.rpartition(".")[2] for token in tokens)):
        assert secret not in log


async def test_a_restart_ends_every_link_and_no_cookie(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        link = await fresh(gateway)
        cookie = {"cookie": f"session={(await opened(gateway, await fresh(gateway))).cookies['session']}"}
        await gateway.restart()
        assert (await opened(gateway, link)).headers["location"] == "/#signin=over"
        assert (await opened(gateway, link, **cookie)).headers["location"] == "/"


# The command


async def test_url_prints_a_fresh_link_and_nothing_else(gateway: Gateway) -> None:
    shown = run("url", "--user", "bob", "--email", "bob@example.com", data=gateway.data_dir)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.fullmatch(rf"{re.escape(gateway.url)}/signin\?link=\w+\n", shown.stdout)
    answer = await opened(gateway, shown.stdout.strip())
    async with gateway.http({"cookie": f"session={answer.cookies['session']}"}) as browser:
        me = (await browser.get("/api/me")).json()
    assert (me["userId"], me["email"]) == ("bob", "bob@example.com")
    machine = json.loads(run("url", "--json", "--url", gateway.url, data=gateway.data_dir).stdout)
    assert set(machine) == {"url", "expiresAt"}
    assert machine["url"] != shown.stdout.strip()


async def test_url_says_what_is_wrong(gateway: Gateway, tmp_path: Path) -> None:
    nobody = run("url", data=tmp_path, settings={"HOLDFAST_PORT": "9"})
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "no gateway answers at http://127.0.0.1:9" in nobody.stderr
    assert "gateway serve" in nobody.stderr
    stranger = run("url", "--url", gateway.url, data=tmp_path)
    assert (stranger.returncode, stranger.stdout) == (1, "")
    assert "HOLDFAST_API_TOKEN" in stranger.stderr
    nameless = run("url", "--user", "a\nb", data=gateway.data_dir)
    assert (nameless.returncode, nameless.stdout) == (1, "")
    assert "userId" in nameless.stderr
    elsewhere = run("url", "--url", "ftp://x", data=tmp_path)
    assert (elsewhere.returncode, elsewhere.stdout) == (1, "")
    assert "Traceback" not in nobody.stderr + stranger.stderr + nameless.stderr + elsewhere.stderr


async def test_a_gateway_that_signs_nothing_prints_its_plain_address(tmp_path: Path) -> None:
    keys = {"JWT_JWKS_URL": "http://127.0.0.1:9/keys", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}
    async with Gateway(tmp_path / "data", **keys) as gateway:
        first = gateway.printed.splitlines()[0]
        assert f"{gateway.url}/" in first
        assert "link=" not in gateway.printed
        settings = {f"HOLDFAST_{name}": value for name, value in keys.items()}
        shown = run("url", data=gateway.data_dir, settings=settings)
        assert (shown.returncode, shown.stdout) == (1, "")
        assert "identity provider" in shown.stderr


async def test_whose_login_is_no_name_gets_the_plain_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nameless(Gateway):
        def environment(self) -> dict[str, str]:
            return super().environment() | {"LOGNAME": "\x1b[31mme"}

    async with Nameless(tmp_path / "data") as gateway:
        assert gateway.url in gateway.printed.splitlines()[0]
        assert "\x1b" not in gateway.printed
        assert "link=" not in gateway.printed
