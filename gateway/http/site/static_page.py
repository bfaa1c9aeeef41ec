"""The built page: `index.html` at `/`, and its files. Read once, before the first request; no other file is ever
served.

A request only looks into the table of these files, so no path, however written, leads out of the directory. The names
below `assets/` carry a hash of their content: they are cached for ever. The page names them, so browsers ask for it
each time, and each answer has a nonce of its own for the styles that a terminal makes.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import PUBLIC
from gateway.http.negotiation import IDENTITY, choose_encoding, is_known
from gateway.http.site.fallback_page import FallbackPage
from gateway.protocol.errors import ApiError
from gateway.routing.parameters import PATH
from gateway.routing.route import route

BUILT = Path(__file__).parents[2] / "page"  # by `make page`; part of a wheel
NONCE = b"__CSP_NONCE__"
ROOT_FILES = ("favicon.svg", "licences.txt", "manifest.webmanifest")
LARGEST = 64 << 20  # of all files together, which stay in memory: a larger page is not ours
FOR_EVER = "public, max-age=31536000, immutable"
ENCODED = {".br": "br", ".gz": "gzip"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-%s'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
TYPES = {  # our own list: the machine's would decide whether a script runs
    ".css": "text/css; charset=utf-8",
    ".gif": "image/gif",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}


class BadPage(Exception):
    """The directory cannot be served; the text says why."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file in each of its forms, the plain one among them."""

    media_type: str
    forms: Mapping[str, bytes]
    tags: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        tags = {name: f'"{hashlib.sha256(body).hexdigest()[:32]}"' for name, body in self.forms.items()}
        object.__setattr__(self, "tags", tags)


@dataclass(frozen=True, slots=True)
class StaticPage:
    index: bytes
    files: Mapping[str, PageFile]  # by request path, without the first slash


def read_page(directory: Path) -> StaticPage | None:
    """The page in `directory`; None if none was built there. Raises BadPage."""
    try:
        if not (directory / "index.html").is_file():
            return None
        found = dict(_walk(directory, [directory / name for name in ROOT_FILES], directory / "assets"))
        index = (directory / "index.html").read_bytes()
    except OSError as error:
        raise BadPage(f"{directory} cannot be read: {error.strerror or error}") from error
    return StaticPage(index, dict(_with_forms(found)))


def _walk(directory: Path, single: list[Path], below: Path) -> Iterator[tuple[str, bytes]]:
    """Plain files only: a link's target was not built here."""
    left = LARGEST
    walked = () if below.is_symlink() else os.walk(below)
    nested = [Path(at, name) for at, _, names in walked for name in names]
    for path in (*single, *nested):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        left -= len(content)
        if left < 0:
            raise BadPage(f"{directory} has more than {LARGEST} bytes")
        yield path.relative_to(directory).as_posix(), content


def _with_forms(found: Mapping[str, bytes]) -> Iterator[tuple[str, PageFile]]:
    for name, content in found.items():
        stem, dot, suffix = name.rpartition(".")
        if dot + suffix in ENCODED and stem in found:
            continue  # a form of another file, and no file of its own
        forms = {coding: found[name + end] for end, coding in ENCODED.items() if name + end in found}
        media_type = TYPES.get((dot + suffix).lower(), "application/octet-stream")
        yield name, PageFile(media_type, {IDENTITY: content, **forms})


class PageRoutes:
    """Until `page` is set, `/` is the plain `home`, and there are no files."""

    def __init__(self, home: FallbackPage) -> None:
        self._home = home
        self.page: StaticPage | None = None

    @route("GET", "/", PUBLIC, "home", "The page, or how to get it if it was not built", media={"text/html": ""})
    async def index(self, _: Request) -> Response:
        if self.page is None:
            return self._home.answer()
        nonce = secrets.token_urlsafe(18)
        body = self.page.index.replace(NONCE, nonce.encode())
        headers = {**PAGE_HEADERS, "Content-Security-Policy": POLICY % nonce}
        return Response(body, headers=headers, media_type=TYPES[".html"])

    @route(
        "GET", "/assets/{path:path}", PUBLIC, "pageFile", "A file of the built page, to be kept for ever",
        parameters=(PATH,), refusals=(400, 404), media={"*/*": ""},
    )  # fmt: skip
    async def asset(self, request: Request) -> Response:
        return self._file(request, f"assets/{request.path_params['path']}", FOR_EVER)

    @route(
        "GET", "/favicon.svg", PUBLIC, "icon", "The page's icon, if it was built with one",
        refusals=(404,), media={"image/svg+xml": ""},
    )  # fmt: skip
    @route(
        "GET", "/licences.txt", PUBLIC, "licences", "The licences of what others wrote and the page contains",
        refusals=(404,), media={"text/plain": ""},
    )  # fmt: skip
    @route(
        "GET", "/manifest.webmanifest", PUBLIC, "manifest", "The page's manifest, if it was built with one",
        refusals=(404,), media={"application/manifest+json": ""},
    )  # fmt: skip
    async def root_file(self, request: Request) -> Response:
        return self._file(request, request.scope["path"].removeprefix("/"), "no-cache")

    def _file(self, request: Request, name: str, caching: str) -> Response:
        file = self.page.files.get(name) if self.page is not None else None
        if file is None:
            raise ApiError(404, "not_found", "there is nothing here")
        form = choose_encoding(",".join(request.headers.getlist("accept-encoding")), file.forms)
        headers = {"Cache-Control": caching, "ETag": file.tags[form], "X-Content-Type-Options": "nosniff"}
        if len(file.forms) > 1:
            headers["Vary"] = "Accept-Encoding"
        if is_known(",".join(request.headers.getlist("if-none-match")), file.tags[form]):
            return Response(status_code=304, headers=headers)
        if form != IDENTITY:
            headers["Content-Encoding"] = form
        return Response(file.forms[form], headers=headers, media_type=file.media_type)
