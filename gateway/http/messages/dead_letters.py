"""Dead letters, for operators: list those records that the store refused, retry them, or drop them."""

import base64
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from gateway.auth.policy import SERVICES, valid_session_id
from gateway.http.messages.answers import DeadLetterJson, DeadLetters, Dropped, Retried
from gateway.http.responses import answer
from gateway.protocol.errors import ApiError
from gateway.routing.json_types import SESSION_ID
from gateway.routing.parameters import IntegerParameter, Parameter
from gateway.routing.route import route
from persistence.ports import MessageStore
from persistence.record import Dead, DeadLetter, Duplicate, Outcome, Rejected, Stored
from persistence.record_json import content_of, iso, metadata_of

LETTERS, ONE = "/internal/dead-letters", "/internal/dead-letters/{number}"
LARGEST_NUMBER = 2**53
SESSION = Parameter("sessionId", {"type": "string", "pattern": SESSION_ID})
AFTER = IntegerParameter("after", 0, LARGEST_NUMBER, 0)
LIMIT = IntegerParameter("limit", 1, 1000, 100)
# A letter may have 1 MiB, and a list shows no content: letters are read in pages of this many, whatever the `limit`.
AT_ONCE = 16
COUNTED = 1000  # a larger number needs no exact count: it calls for a person either way


class DeadLetterRoutes:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @route(
        "GET", LETTERS, SERVICES, "listDeadLetters", "Records that the store would not take",
        answers={200: DeadLetters}, parameters=(SESSION, AFTER, LIMIT), refusals=(400, 503),
    )  # fmt: skip
    async def index(self, request: Request) -> Response:
        """The first `limit` letters after the number `after`, without their contents; `next` is the `after` of the next
        page."""
        session_id = request.query_params.get("sessionId")
        if session_id is not None and not valid_session_id(session_id):
            raise ApiError(400, "bad_parameter", "sessionId is not a valid session id")
        after, limit = AFTER.read(request), LIMIT.read(request)
        shown: list[dict[str, Any]] = []
        more = True
        while more and len(shown) < limit:
            wanted = min(AT_ONCE, limit - len(shown))
            page = await self._store.dead_letters(session_id, after=after, limit=wanted)
            shown += map(heading, page)
            more = len(page) == wanted
            after = page[-1].number if page else after
        return answer({"deadLetters": shown, "next": after if more else None})

    @route(
        "GET", ONE, SERVICES, "getDeadLetter", "One dead letter with its content",
        answers={200: DeadLetterJson}, refusals=(404, 503),
    )  # fmt: skip
    async def show(self, request: Request) -> Response:
        number = _number(request)
        found = await self._store.dead_letters(after=number - 1, limit=1)
        if not found or found[0].number != number:
            raise _unknown(number)
        return answer(whole(found[0]))

    @route(
        "POST", ONE + "/retry", SERVICES, "retryDeadLetter", "Try again to store a dead letter in its place",
        answers={200: Retried}, refusals=(404, 503),
    )  # fmt: skip
    async def retry(self, request: Request) -> Response:
        """Answers with the outcome: a letter that is refused once more is no error of the request."""
        number = _number(request)
        outcome = await self._store.retry_dead_letter(number)
        if outcome is None:
            raise _unknown(number)
        return answer({"number": number, **told(outcome)})

    @route(
        "DELETE", ONE, SERVICES, "dropDeadLetter", "Forget a dead letter; its marker stays",
        answers={200: Dropped}, refusals=(404, 503),
    )  # fmt: skip
    async def drop(self, request: Request) -> Response:
        number = _number(request)
        if not await self._store.drop_dead_letter(number):
            raise _unknown(number)
        return answer(Dropped(number, True))


async def letters_kept(store: MessageStore) -> int:
    """The number of dead letters, at most COUNTED."""
    count, after = 0, 0
    while count < COUNTED and (page := await store.dead_letters(after=after, limit=AT_ONCE)):
        count, after = count + len(page), page[-1].number
    return min(count, COUNTED)


def _number(request: Request) -> int:
    text = request.path_params["number"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and 0 < int(text) <= LARGEST_NUMBER):
        raise ApiError(404, "unknown_letter", "a dead letter is named by its number")
    return int(text)


def _unknown(number: int) -> ApiError:
    return ApiError(404, "unknown_letter", f"there is no dead letter {number}")


def heading(letter: DeadLetter) -> dict[str, Any]:
    record = letter.record
    return {
        "number": letter.number,
        "sessionId": record.session_id,
        "seq": record.seq,
        "cid": _writable(record.cid),
        "role": _writable(record.role),
        "type": _writable(record.type),
        "reason": _writable(letter.reason),
        "bytes": len(record.payload),
        "createdAt": _when(record.created_at),
        "buriedAt": _when(letter.buried_at),
    }


def whole(letter: DeadLetter) -> dict[str, Any]:
    """With its content: `content` and `metadata` if they can be parsed, else the payload's bytes in base64."""
    try:
        body = orjson.loads(letter.record.payload)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        return heading(letter) | {"payload": base64.b64encode(letter.record.payload).decode()}
    return heading(letter) | {"content": content_of(body), "metadata": metadata_of(body)}


def told(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Stored(seq):
            return {"outcome": "stored", "seq": seq}
        case Duplicate(first):
            return {"outcome": "duplicate", "first": first}
        case Dead(reason):
            return {"outcome": "dead", "reason": _writable(reason)}
        case Rejected(reason):
            return {"outcome": "rejected", "reason": _writable(reason)}
    return {"outcome": type(outcome).__name__.lower()}


def _writable(text: str) -> str:
    """A letter may be dead for its text: characters that UTF-8 cannot encode are escaped."""
    return text.encode(errors="backslashreplace").decode()


def _when(seconds: float) -> str | None:
    """A letter may be dead for its time, too; then None."""
    try:
        return iso(seconds)
    except (ValueError, OverflowError, OSError):
        return None
