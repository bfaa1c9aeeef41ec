"""One file or directory of a running sandbox, asked of its bridge. The answer is untrusted: bounded, and checked."""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncGenerator
from typing import Literal
from urllib.parse import quote_from_bytes

import msgspec

from sandbox.tree.entry import MAX_FILE, MAX_MTIME_NS, MAX_NAME, MAX_PATH
from sandbox.tree.ports import LiveEntry, LiveFile, LiveListing, TreeFailed
from sandbox.wire import clip

MAX_HEAD = 16 << 10
MAX_LISTING = 32 << 20
MOST_LISTED = 20_000  # more than a bridge tells
DECODE_HERE = 64 << 10  # more is decoded in a thread
MAX_ERROR = 64 << 10
READ_BYTES = 256 << 10

_UNREADABLE = (
    OSError,
    EOFError,
    LookupError,
    ValueError,
    RecursionError,
    asyncio.LimitOverrunError,
    msgspec.DecodeError,
)
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


class _Listing(msgspec.Struct):
    entries: list[_Item]
    truncated: bool


class _Error(msgspec.Struct):
    error: str


async def look(
    address: tuple[str, str], root: bytes, path: bytes, start: int, length: int | None, silence_seconds: float
) -> LiveListing | LiveFile | None:
    """As SandboxTree.files, of the bridge with this socket and token."""
    socket, token = address
    lines = [f"GET /files/{quote_from_bytes(root + b'/' + path)} HTTP/1.1", "Host: bridge", "Connection: close"]
    lines.append(f"Authorization: Bearer {token}")
    if start or length is not None:
        last = "" if length is None else start + max(length, 1) - 1
        lines.append(f"Range: bytes={start}-{last}")
    answer: _Answer | None = None
    try:
        async with asyncio.timeout(silence_seconds):
            answer = _Answer(*await asyncio.open_unix_connection(socket, limit=READ_BYTES), silence_seconds)
            found = await answer.to("\r\n".join(lines).encode() + b"\r\n\r\n", start, length)
    except TimeoutError:
        raise TreeFailed("silent", "the bridge does not answer") from None
    except _UNREADABLE:  # their texts may repeat what was sent
        raise TreeFailed("failed", "the bridge gave no answer that can be read") from None
    finally:
        if answer is not None and not answer.is_kept:
            answer.close()
    return found


class _Answer:
    """One answer of a bridge. `is_kept`: the connection now belongs to the file that is read from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_seconds: float) -> None:
        self._reader = reader
        self._writer = writer
        self._silence_seconds = silence_seconds
        self.is_kept = False

    def close(self) -> None:
        self._writer.transport.abort()

    async def to(self, request: bytes, start: int, length: int | None) -> LiveListing | LiveFile | None:
        """Raises TreeFailed, and EOFError, OSError, ValueError or DecodeError if it cannot be read."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        status = head[0].split(b" ", 2)[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:-2])}
        size = _number(headers[b"content-length"])
        if status == b"404":
            return None
        if status == b"416":
            return LiveFile(_whole(headers)[1], start, 0, _nothing())
        if status not in (b"200", b"206"):
            error = msgspec.json.decode(await self._body(size, MAX_ERROR), type=_Error)
            raise TreeFailed("bad_path" if status == b"403" else "failed", clip(error.error))
        if headers[b"content-type"] != b"application/octet-stream":
            body = await self._body(size, MAX_LISTING)
            return _listing(body) if size <= DECODE_HERE else await asyncio.to_thread(_listing, body)
        first, whole = _whole(headers) if status == b"206" else (0, size)
        if length == 0:
            return LiveFile(whole, start, 0, _nothing())
        if first != start or first + size > whole or (length is not None and size > length):
            raise ValueError("another range")
        self.is_kept = True
        return LiveFile(whole, start, size, self._content(size), self.close)

    async def _body(self, size: int, most: int) -> bytes:
        if size > most:
            raise ValueError("too long")
        return await self._reader.readexactly(size)

    async def _content(self, left: int) -> AsyncGenerator[bytes, None]:
        try:
            while left:
                async with asyncio.timeout(self._silence_seconds):
                    piece = await self._reader.read(min(left, READ_BYTES))
                if not piece:
                    raise TreeFailed("failed", "the file did not come whole")
                left -= len(piece)
                yield piece
        except TimeoutError:
            raise TreeFailed("silent", "the bridge fell silent") from None
        except OSError as exc:
            raise TreeFailed("failed", "the file did not come whole") from exc
        finally:
            self.close()


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
    return LiveListing(tuple(map(_entry, listing.entries)), listing.truncated)


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
