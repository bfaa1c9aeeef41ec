"""A request's body, as the struct of its route."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from starlette.requests import Request

from sandbox.bridge.base.requests import Refused
from sandbox.protocol.messages import NotJson, WireError, read

MAX_BODY = 2 * 1024 * 1024

T = TypeVar("T")


async def read_body(
    request: Request, decoder: "msgspec.json.Decoder[T]", words: Mapping[str, str], empty: T | None = None
) -> T:
    """`words` names for each member how it should be, and under "" how the object should be. `empty`, unless None,
    stands for a body of no bytes. Raises Refused."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Refused(413, "too_large", f"at most {MAX_BODY} bytes")
    if not body and empty is not None:
        return empty
    try:
        return read(decoder, bytes(body))
    except NotJson:
        raise Refused(400, "bad_request", "the body must be JSON") from None
    except WireError as exc:
        raise Refused(400, "bad_request", words.get(exc.member, words[""])) from None
