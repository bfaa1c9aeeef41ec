"""Reads one file or directory of a running sandbox from its bridge. The answer is untrusted: bounded, and checked.

A file is read piece by piece. A listing is read whole: a long one takes one of a few places that all sandboxes of a
provider share, and only when its head has come, so that a silent bridge holds none.
"""

import asyncio
import base64
import binascii
import re
import traceback
from collections.abc import AsyncGenerator
from typing import Literal
from urllib.parse import quote_from_bytes

import msgspec

from sandbox.client.endpoint import Endpoint
from sandbox.client.http1 import HttpResponse
from sandbox.client.http_client import Connection, connect
from sandbox.ports.tree import LiveEntry, LiveFile, LiveListing, TreeFailed
from sandbox.protocol.entry import MAX_FILE, MAX_MTIME_NS, MAX_NAME, MAX_PATH
from sandbox.protocol.messages import clip

MAX_LISTING = 8 << 20  # more than a bridge sends; earlier versions stay below it with any usual names
MOST_LISTED = 20_000  # likewise
LONG_LISTING = 64 << 10  # more than this takes a place, and is decoded in a thread
LISTINGS_AT_ONCE = 8
LISTING_SECONDS = 10.0  # a place may be held for so long
MAX_ERROR = 64 << 10

_UNREADABLE = (OSError, LookupError, ValueError, RecursionError, msgspec.DecodeError)
_CONTENT_RANGE = re.compile(rb"bytes (?:([0-9]{1,16})-[0-9]{1,16}|\*)/([0-9]{1,16})")


class _Item(msgspec.Struct, rename="camel"):
    name: str
    kind: Literal["file", "directory", "symlink", "other"]
    mode: int
    mtime_ns: int
    size: int
    target: str = ""
    name_base64: str | None = None
    target_base64: str | None = None


_decode_item = msgspec.json.Decoder(_Item).decode


class _Listing(msgspec.Struct):
    entries: list[msgspec.Raw]  # counted before they are decoded
    truncated: bool


class _FilesError(msgspec.Struct):
    error: str


async def look(
    endpoint: Endpoint,
    root: bytes,
    path: bytes,
    start: int,
    length: int | None,
    silence_seconds: float,
    listings: asyncio.Semaphore,
) -> LiveListing | LiveFile | None:
    """As Sandbox.files, of the bridge at `endpoint`. `listings` are the places for long ones."""
    target = f"{endpoint.prefix}/files/{quote_from_bytes(root + b'/' + path)}"
    headers = {"Host": endpoint.host, "Connection": "close", **endpoint.headers}
    if start or length is not None:
        last = "" if length is None else start + max(length, 1) - 1
        headers["Range"] = f"bytes={start}-{last}"
    connection: Connection | None = None
    found: LiveListing | LiveFile | None = None
    try:
        async with asyncio.timeout(silence_seconds):
            connection = await connect(endpoint)
            answer = await connection.ask("GET", target, headers)
            found = await _understand(connection, answer, start, length, silence_seconds, listings)
    except TimeoutError:
        raise TreeFailed("silent", "the bridge does not answer") from None
    except _UNREADABLE as exc:  # its text may repeat the answer
        traceback.clear_frames(exc.__traceback__)  # they hold the answer until the garbage collector comes
        raise TreeFailed("failed", "the bridge gave no answer that can be read") from None
    finally:
        if connection is not None and not (isinstance(found, LiveFile) and found.length):
            connection.close()  # else the file that is read from it owns it
    return found


async def _understand(
    connection: Connection,
    answer: HttpResponse,
    start: int,
    length: int | None,
    silence_seconds: float,
    listings: asyncio.Semaphore,
) -> LiveListing | LiveFile | None:
    """Raises TreeFailed, TimeoutError, and OSError, LookupError, ValueError or DecodeError if it cannot be read."""
    size = _number(answer.headers[b"content-length"])
    if answer.status == 404:
        return None
    if answer.status == 416:
        return LiveFile(_whole(answer.headers)[1], start, 0, _nothing())
    if answer.status not in (200, 206):
        error = msgspec.json.decode(await _body(connection, size, MAX_ERROR), type=_FilesError)
        raise TreeFailed("bad_path" if answer.status == 403 else "failed", clip(error.error))
    if answer.headers[b"content-type"] != b"application/octet-stream":
        if size <= LONG_LISTING:
            return _listing(await connection.read_whole(size))
        async with listings, asyncio.timeout(LISTING_SECONDS):
            return await asyncio.to_thread(_listing, await _body(connection, size, MAX_LISTING))
    first, whole = _whole(answer.headers) if answer.status == 206 else (0, size)
    if length == 0:
        return LiveFile(whole, start, 0, _nothing())
    if first != start or first + size > whole or (length is not None and size > length):
        raise ValueError("another range")
    return LiveFile(whole, start, size, _content(connection, silence_seconds), connection.close)


async def _body(connection: Connection, size: int, most: int) -> bytes:
    if size > most:
        raise ValueError("too long")
    return await connection.read_whole(size)


async def _content(connection: Connection, silence_seconds: float) -> AsyncGenerator[bytes, None]:
    try:
        while True:
            async with asyncio.timeout(silence_seconds):
                piece = await connection.read()
            if not piece:
                return
            yield piece
    except TimeoutError:
        raise TreeFailed("silent", "the bridge fell silent") from None
    except OSError as exc:
        raise TreeFailed("failed", "the file did not come whole") from exc
    finally:
        connection.close()


async def _nothing() -> AsyncGenerator[bytes, None]:
    return
    yield


def _number(text: bytes) -> int:
    if not text.isdigit() or int(text[:20]) > MAX_FILE:
        raise ValueError("a size that cannot be")
    return int(text)


def _whole(headers: dict[bytes, bytes]) -> tuple[int, int]:
    """Where the content begins in its file, and the size of that file."""
    match = _CONTENT_RANGE.fullmatch(headers.get(b"content-range", b""))
    if match is None:
        raise ValueError("no range")
    return _number(match[1] or b"0"), _number(match[2])


def _listing(body: bytes) -> LiveListing:
    listing = msgspec.json.decode(body, type=_Listing)
    if len(listing.entries) > MOST_LISTED:
        raise ValueError("too many")
    return LiveListing(tuple(_entry(_decode_item(entry)) for entry in listing.entries), listing.truncated)


def _entry(item: _Item) -> LiveEntry:
    name, target = _raw(item.name, item.name_base64), _raw(item.target, item.target_base64)
    if not 0 < len(name) <= MAX_NAME or b"/" in name or b"\0" in name or len(target) > MAX_PATH or b"\0" in target:
        raise ValueError("a name that cannot be")
    if not 0 <= item.mode <= 0o7777 or abs(item.mtime_ns) > MAX_MTIME_NS or not 0 <= item.size <= MAX_FILE:
        raise ValueError("a number that cannot be")
    return LiveEntry(name, item.kind, item.mode, item.mtime_ns, item.size, target)


def _raw(text: str, encoded: str | None) -> bytes:
    try:
        return text.encode() if encoded is None else base64.b64decode(encoded, validate=True)
    except (binascii.Error, UnicodeEncodeError) as exc:
        raise ValueError("a name that cannot be read") from exc
