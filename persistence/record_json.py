"""A record in the form for the outside: on the sockets, in the API and at an HTTP sink. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

from persistence.record import Record

BRIEF_BYTES = 4096  # a spec of at most so many bytes is listed whole


def brief(spec: bytes) -> bytes:
    """A session's spec in lists: without the agent's `start` and `pending`, which may be long."""
    if len(spec) <= BRIEF_BYTES:
        return spec
    return orjson.dumps({name: part for name, part in orjson.loads(spec).items() if name not in ("start", "pending")})


def up_to(records: Iterable[Record], max_bytes: int | None) -> list[Record]:
    """The first of them; no further one once their payloads have `max_bytes`. The rest is not even read."""
    found, size = list[Record](), 0
    for record in records:
        found.append(record)
        size += len(record.payload)
        if max_bytes is not None and size >= max_bytes:
            break
    return found


def content_of(payload: dict[str, Any]) -> Any:
    """A permission or a question, and their answers, have no `content` of their own: it is the frame without its
    envelope."""
    if "content" in payload:
        return payload["content"]
    return {key: value for key, value in payload.items() if key not in ("type", "cid", "metadata")}


def metadata_of(payload: dict[str, Any]) -> dict[str, Any]:
    metadata = payload.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def iso(seconds: float) -> str:
    """Seconds since 1970 in UTC, to the millisecond."""
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_iso_second(whole)}.{micros // 1000:03d}Z"


@lru_cache(maxsize=64)
def _iso_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
