"""Finds files in a stored tree, and describes them. Pure.

A path comes from a URL and is bytes, as names are. It is never resolved by a file system: it is looked up among the
tree's entries, so a hostile path is at worst not found. Symlinks are followed as the kernel would follow them, but only
within their own root, and at most MAX_LINKS of them.
"""

import base64
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from blake3 import blake3

from gateway.protocol.errors import ApiError
from persistence.record_json import iso
from sandbox.protocol.entry import BadEntry, Entry, Kind, check_path

ROOTS = {"workspace": b"workspace", "agent": b"agent"}
MAX_LINKS = 40  # as many as Linux follows
LISTED = 10_000  # entries of one answer
KINDS = {Kind.FILE: "file", Kind.DIRECTORY: "directory", Kind.SYMLINK: "symlink"}


def read_path(raw_path: bytes, root: str) -> tuple[bytes, bool]:
    """The path in a request for `/files/{id}` or `/files/{id}/...`, with its root in front, and whether it must be a
    directory (it ends with a slash). Raises ApiError 400 for a path that no tree can have."""
    path = unquote_to_bytes(b"".join(raw_path.split(b"/", 3)[3:]))
    must_be_directory = path.endswith(b"/") or not path
    inside = path.removesuffix(b"/")
    whole = ROOTS[root] + (b"/" + inside if inside or path else b"")
    try:
        check_path(whole)
    except BadEntry as error:
        raise ApiError(400, "bad_path", f"this cannot be read: {error}") from None
    return whole, must_be_directory


def find(entries: Mapping[bytes, Entry], path: bytes) -> tuple[bytes, Entry | None]:
    """The real path and the entry at `path`, symlinks followed; the entry is None for a root. Raises ApiError 404."""
    root, *asked = path.split(b"/")
    at = [root]
    entry: Entry | None = None
    links, todo = 0, deque(asked)
    while todo:
        name = todo.popleft()
        if entry is not None and entry.kind == Kind.FILE:  # a file has nothing below it, not even `.`
            raise _nothing_there()
        if name in (b"", b"."):
            continue
        if name == b"..":
            if len(at) == 1:
                raise leads_out()
            at.pop()
            entry = entries.get(b"/".join(at))
            continue
        below = entries.get(b"/".join([*at, name]))
        if below is None:
            raise _nothing_there()
        if below.kind == Kind.SYMLINK:
            links += 1
            if links > MAX_LINKS:
                raise ApiError(404, "too_many_links", "too many symlinks lead from one to the next")
            if below.target.startswith(b"/"):
                raise leads_out()
            todo.extendleft(reversed(below.target.split(b"/")))
            continue
        at.append(name)
        entry = below
    return b"/".join(at), entry


def children(entries: Mapping[bytes, Entry], directory: bytes) -> list[Entry]:
    """The entries directly in the directory, by name. Looks at every entry of the tree."""
    prefix = directory + b"/"
    start = len(prefix)
    found = [entry for path, entry in entries.items() if path.startswith(prefix) and path.find(b"/", start) < 0]
    return sorted(found, key=lambda entry: entry.path)


def listed(entry: Entry) -> dict[str, Any]:
    """One line of a directory."""
    return {
        **written("name", entry.path.rpartition(b"/")[2]),
        "type": KINDS[Kind(entry.kind)],
        "size": entry.size,
        "mode": f"{entry.mode:04o}",
        "mtime": when(entry.mtime_ns),
        **(written("target", entry.target) if entry.kind == Kind.SYMLINK else {}),
        **({"unsettled": True} if entry.unsettled else {}),
    }


def briefly(entry: Entry) -> dict[str, Any]:
    """An entry by its whole path."""
    return {**written("path", entry.path), "type": KINDS[Kind(entry.kind)], "size": entry.size}


def written(member: str, name: bytes) -> dict[str, str]:
    """`name` as text; if it is not UTF-8, its bytes are given, too."""
    try:
        return {member: name.decode()}
    except UnicodeDecodeError:
        return {member: name.decode(errors="replace"), f"{member}Base64": base64.b64encode(name).decode()}


def when(mtime_ns: int) -> str | None:
    try:
        return iso(mtime_ns / 10**9)
    except (ValueError, OverflowError, OSError):  # a file may be dated beyond every calendar
        return None


def content_tag(entry: Entry) -> str:
    """The same for the same bytes, and for no others: a strong ETag."""
    digest = blake3(b"".join(chunk.id + chunk.size.to_bytes(8, "little") for chunk in entry.chunks))
    return f'"{digest.hexdigest(length=16)}"'


def some(entries: Iterable[Entry], room: int) -> list[dict[str, Any]]:
    """The first `room` of them."""
    return [briefly(entry) for _, entry in zip(range(room), entries, strict=False)]


def leads_out() -> ApiError:
    return ApiError(404, "link_leads_out", "a symlink leads out of this root: it is not followed")


def _nothing_there() -> ApiError:
    return ApiError(404, "no_such_file", "there is no such file or directory")
