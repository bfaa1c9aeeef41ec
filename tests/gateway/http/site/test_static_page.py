"""The built page as browsers get it: the page with its policy, its files for ever, and nothing else of the disk."""

import gzip
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from gateway.app import build_house
from gateway.config.loading import load_settings
from gateway.config.settings import resolve_secrets
from gateway.http.site import static_page as page_module
from gateway.http.site.static_page import BadPage, read_page
from tests.support.page import FILES, SCRIPT, make_page

CHROMIUM = "gzip, deflate, br, zstd"
OWN = "http://127.0.0.1"


@asynccontextmanager
async def opened(page: Path, data: Path) -> AsyncIterator[Starlette]:
    """A whole gateway, with its policy, that found its page at `page`."""
    settings = load_settings({"HOLDFAST_DATA_DIR": str(data), "HOLDFAST_LOCAL_LEVEL": "trusted"})
    house = build_house(settings, resolve_secrets(settings), page=page)
    async with house.app.router.lifespan_context(house.app):
        yield house.app


@asynccontextmanager
async def serving(page: Path, data: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        opened(page, data) as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=OWN, trust_env=False, verify=False) as client,
    ):
        client.headers["accept-encoding"] = "identity"
        yield client


@pytest.fixture(scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx.AsyncClient]:
    home = tmp_path_factory.mktemp("page")
    async with serving(make_page(home / "page"), home / "data") as client:
        yield client


async def test_the_page_is_served_with_a_fresh_nonce_and_a_policy_that_names_it(browser: httpx.AsyncClient) -> None:
    first, second = await browser.get("/"), await browser.get("/")
    nonces = []
    for answer in (first, second):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        (nonce,) = re.findall(r'<meta name="csp-nonce" content="([A-Za-z0-9_-]{24})">', answer.text)
        assert answer.headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; "
            f"style-src 'self' 'nonce-{nonce}'; "
            "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; manifest-src 'self'; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )
        nonces.append(nonce)
    assert nonces[0] != nonces[1]
    assert "__CSP_NONCE__" not in first.text


async def test_the_page_is_asked_for_each_time_and_tells_nobody_where_one_was(browser: httpx.AsyncClient) -> None:
    headers = (await browser.get("/")).headers
    assert headers["cache-control"] == "no-cache"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert "microphone=()" in headers["permissions-policy"]
    assert "etag" not in headers
    assert (await browser.head("/")).status_code == 200


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/assets/index-a1.css", "text/css; charset=utf-8"),
        ("/assets/index-b2.js", "text/javascript; charset=utf-8"),
        ("/assets/fonts/mono-c3.woff2", "font/woff2"),
        ("/assets/notes.gz", "application/octet-stream"),
    ],
)
async def test_a_file_of_the_page_is_kept_for_ever(browser: httpx.AsyncClient, path: str, media_type: str) -> None:
    answer = await browser.get(path)
    assert (answer.status_code, answer.content) == (200, FILES[path[1:]])
    assert answer.headers["content-type"] == media_type
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert re.fullmatch(r'"[0-9a-f]{32}"', answer.headers["etag"])
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("name", ["favicon.svg", "licences.txt", "manifest.webmanifest"])
async def test_a_file_without_a_hash_in_its_name_is_asked_about_each_time(
    browser: httpx.AsyncClient, name: str
) -> None:
    answer = await browser.get(f"/{name}")
    assert answer.content == FILES[name]
    types = {"f": "image/svg+xml", "l": "text/plain; charset=utf-8", "m": "application/manifest+json"}
    assert answer.headers["content-type"] == types[name[0]]
    assert answer.headers["cache-control"] == "no-cache"
    known = await browser.get(f"/{name}", headers={"If-None-Match": answer.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


async def test_a_browser_gets_the_form_that_it_likes_best(browser: httpx.AsyncClient) -> None:
    path, tags = "/assets/index-b2.js", set()
    for accepted, form in ((CHROMIUM, "br"), ("gzip", "gzip"), ("br;q=0, gzip", "gzip"), ("identity", None)):
        async with browser.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
            raw = b"".join([piece async for piece in answer.aiter_raw()])
        assert answer.headers.get("content-encoding") == form
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert answer.headers["content-length"] == str(len(raw))
        assert raw == {"br": FILES[f"{path[1:]}.br"], "gzip": gzip.compress(SCRIPT, mtime=0), None: SCRIPT}[form]
        tags.add(answer.headers["etag"])
    assert len(tags) == 3, "a strong tag belongs to one form"


async def test_a_known_form_is_not_sent_again_and_another_is(browser: httpx.AsyncClient) -> None:
    path = "/assets/index-b2.js"
    plain = (await browser.get(path)).headers["etag"]
    known = await browser.get(path, headers={"If-None-Match": f'"x", {plain}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", plain)
    assert known.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert known.headers["vary"] == "Accept-Encoding"
    other = await browser.get(path, headers={"If-None-Match": plain, "Accept-Encoding": "gzip"})
    assert (other.status_code, other.content) == (200, SCRIPT)


NOT_THERE = (
    "/assets/", "/assets", "/assets/nothing.js", "/assets/index-b2.js.br", "/assets/index-b2.js.gz",
    "/assets/../index.html", "/assets/%2e%2e/index.html", "/assets/..%2findex.html", "/assets/%2fetc/passwd",
    "/assets//etc/passwd", "/assets/fonts", "/assets/fonts/", "/assets/./index-a1.css", "/assets/INDEX-A1.css",
    "/assets/index-a1.css/", "/assets/index-a1.css%00", "/assets/link.css", "/assets/beyond/secret",
    "/index.html", "/assets/index.html", "/favicon.svg/", "/..%5cindex.html",
)  # fmt: skip


async def asked_as_written(app: Starlette, target: str) -> int:
    """The status for a path that no client has tidied up before."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1")]
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "path": unquote(target), "raw_path": target.encode(),
        "query_string": b"", "headers": headers, "root_path": "", "asgi": {"spec_version": "2.4"},
    }  # fmt: skip
    await app(scope, receive, send)
    return int(sent[0]["status"])


async def test_what_was_not_built_is_not_there(tmp_path: Path) -> None:
    page = make_page(tmp_path / "page")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("not of the page")
    os.symlink(tmp_path / "elsewhere" / "secret", page / "assets" / "link.css")
    os.symlink(tmp_path / "elsewhere", page / "assets" / "beyond")
    async with opened(page, tmp_path / "data") as app:
        assert await asked_as_written(app, "/assets/fonts/mono-c3.woff2") == 200
        assert await asked_as_written(app, "/assets/%66onts/mono-c3.woff2") == 200
        for target in NOT_THERE:
            assert await asked_as_written(app, target) in (400, 404), target


async def test_what_changes_after_the_start_is_not_served(tmp_path: Path) -> None:
    page = make_page(tmp_path / "page")
    async with serving(page, tmp_path / "data") as browser:
        (page / "assets" / "late.js").write_text("late")
        (page / "assets" / "index-a1.css").write_text("changed")
        assert (await browser.get("/assets/late.js")).status_code == 404
        assert (await browser.get("/assets/index-a1.css")).content == FILES["assets/index-a1.css"]


async def test_without_a_built_page_there_is_the_plain_one_that_says_how_to_get_it(tmp_path: Path) -> None:
    async with serving(tmp_path / "none", tmp_path / "data") as browser:
        home = await browser.get("/", headers={"Host": "evil.example"})
        assert home.status_code == 200
        assert "unsafe-inline" not in home.headers["content-security-policy"]
        assert "<script" not in home.text
        assert "holdfast chat" in home.text
        assert "curl -X POST" in home.text
        assert "http://127.0.0.1:8080/api/sandboxes" in home.text, "where it listens"
        assert "evil.example" not in home.text, "the page repeats only what the gateway knows itself"
        assert "make page" in home.text
        assert "holdfast url" in home.text
        assert "wheel" in home.text
        for path in ("/assets/index-a1.css", "/favicon.svg", "/manifest.webmanifest"):
            assert (await browser.get(path)).status_code == 404


async def test_a_page_that_cannot_be_read_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make_page(tmp_path / "page")
    monkeypatch.setattr(page_module, "LARGEST", 1000)
    with pytest.raises(BadPage, match="more than 1000 bytes"):
        read_page(page)
    async with serving(page, tmp_path / "data") as browser:
        assert "make page" in (await browser.get("/")).text


def test_a_directory_that_cannot_be_entered_is_told_in_words(tmp_path: Path) -> None:
    page = make_page(tmp_path / "page")
    (page / "assets" / "index-a1.css").unlink()
    os.mkfifo(page / "assets" / "pipe.js")
    os.symlink(tmp_path / "gone", page / "assets" / "index-a1.css")
    found = read_page(page)
    assert found is not None
    assert "assets/pipe.js" not in found.files, "nothing is waited for"
    (tmp_path / "file").write_text("")
    assert read_page(tmp_path / "file") is None
    os.symlink("loop", tmp_path / "loop")
    assert read_page(tmp_path / "loop") is None


def test_an_assets_directory_that_is_a_link_leads_nowhere(tmp_path: Path) -> None:
    page = make_page(tmp_path / "page")
    (page / "assets").rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", page / "assets")
    found = read_page(page)
    assert found is not None
    assert sorted(found.files) == ["favicon.svg", "licences.txt", "manifest.webmanifest"]
