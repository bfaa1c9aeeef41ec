"""The route to models: a request of a sandbox goes to its provider with the real key, and the answer comes back.

The request is read whole first: so its length is known, its cost can be entered before it goes out, and it can go out
once more with another key. The answer is passed on piece by piece as it comes, and read by the meter on its way. A
provider that refuses the key (401, 403) is asked once more if the gateway has another key; otherwise its answer is
passed on. A redirect is not followed: it would take the key to another place.

Bounds: a body has MAX_BODY; bodies of one session have ROOM_OF_ONE together, all of them ROOM. One takes a quarter of
what is left at most, so that a few sessions with large ones leave room for everybody's small ones.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import msgspec
import structlog

from gateway.egress.body import chunk_size, drop_trailers
from gateway.egress.head import NotServed, end_to_end
from gateway.egress.meter import BYTES_A_TOKEN, Meter, MeterReading, Tokens
from gateway.egress.model_requests import (
    MAX_BODY,
    AskedModel,
    error_answer,
    head_back,
    headers_to_origin,
    read_asked,
)
from gateway.egress.model_settings import (
    SPENDING,
    AskKey,
    HeardSpending,
    ModelSetup,
    NoteToGateway,
    ProviderKey,
    RenewedKey,
    RouteSettings,
    note_to_proxy,
    read_route,
    read_spending,
)
from gateway.egress.origins import OriginAnswer, OriginDialer, OriginPool
from gateway.egress.providers import ModelProvider, Passage, key_headers, passage
from gateway.egress.repositories import ROUTE as GIT
from gateway.egress.routes import Exchange
from gateway.egress.sessions import last_words
from gateway.egress.spending import BudgetRefused, Spending
from gateway.egress.stream import ByteStream, StreamLost

log = structlog.get_logger()

ROOM, ROOM_OF_ONE = 256 << 20, 64 << 20
BODY_SECONDS, KEY_SECONDS = 60.0, 20.0
EARLY_SECONDS = 30.0  # so long before a token ends, another one is asked for
REFUSED = (401, 403)
_ERROR_BYTES = 64 << 10


class ModelRefusal(Exception):
    """An answer of ours, in the API's own format."""

    def __init__(self, status: int, words: str, code: str) -> None:
        super().__init__(words)
        self.status = status
        self.code = code


class ModelRoute:
    """Implements gateway.egress.routes.Route, for all providers. `tell` sends a note to the gateway, and returns
    whether it was sent."""

    def __init__(self, dialer: OriginDialer, tell: Callable[[NoteToGateway], bool]) -> None:
        self._tell = tell
        self._origins = OriginPool(dialer)
        self.spending = Spending(tell)
        self._room: Counter[str] = Counter()
        self._number = 0
        self._asked: dict[int, asyncio.Future[ProviderKey]] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[ProviderKey]] = {}  # by session and route

    # -- Route --------------------------------------------------------------------------------------------------------

    async def serve(self, exchange: Exchange) -> None:
        try:
            settings = read_route(exchange.settings)
        except msgspec.MsgspecError:
            raise NotServed(404, "this path is no provider's") from None
        provider = settings.provider
        passed = passage(provider, exchange.head.method, exchange.path)
        api = passed.api if passed else provider.apis[0]
        try:
            if passed is None:
                words = (
                    f"{exchange.head.method} {exchange.path[:100]} does not pass to {provider.name}: calls of models do"
                )
                raise ModelRefusal(404, words, "not_passed")
            async with self._body(exchange) as body, _unless_it_goes(exchange.stream):
                await self._serve(exchange, settings, passed, body)
        except ModelRefusal as refusal:
            await last_words(exchange.stream, error_answer(api, refusal.status, str(refusal), refusal.code))

    def heard(self, body: msgspec.Raw) -> None:
        match note_to_proxy(body):
            case ModelSetup(journal, prices_file):
                self.spending.open(journal, prices_file)
            case HeardSpending(number):
                self.spending.heard(number)
            case RenewedKey(number, key):
                if (asked := self._asked.get(number)) is not None and not asked.done():
                    asked.set_result(key)

    def forget(self, session: str) -> None:
        """Its spending stays."""

    # -- one request --------------------------------------------------------------------------------------------------

    async def _serve(self, exchange: Exchange, settings: RouteSettings, passed: Passage, body: bytes) -> None:
        settings = await self._with_key(exchange.policy.session, settings)
        if not passed.metered:
            answer = await self._ask(exchange, settings, passed, body)
            return await self._pass_on(exchange, settings.provider, answer, None)
        asked = read_asked(body, passed.model)
        if asked.later:
            raise ModelRefusal(
                400, "an answer in the background cannot be counted: leave `background` out", "not_passed"
            )
        name = await self._enter(exchange, settings, asked, len(body))
        answered = False
        meter: Meter | None = None
        reading: MeterReading | None = None
        whole = False
        try:
            answer = await self._ask(exchange, settings, passed, body)
            answered = True
            if answer.head.status == 200:
                kind = answer.head.headers.get(b"content-type", b"")
                meter = Meter(passed.api, streamed=kind.startswith(b"text/event-stream"))
            await self._pass_on(exchange, settings.provider, answer, meter)
            whole = True
        except asyncio.CancelledError:
            if not answered:
                reading = unheard(asked, passed, len(body))
            raise
        finally:
            if meter is not None:
                reading = meter.read(sent_bytes=len(body), whole=whole)
            self.spending.settle(name, reading, asked)

    async def _enter(self, exchange: Exchange, settings: RouteSettings, asked: AskedModel, sent: int) -> str:
        policy = exchange.policy
        limits = read_spending(policy.routes.get(SPENDING))
        try:
            return await self.spending.enter(policy.session, policy.user, settings.name, limits, asked, sent)
        except BudgetRefused as error:
            raise ModelRefusal(402, str(error), "budget_exceeded") from None
        except TimeoutError:
            raise ModelRefusal(
                402, "what is under way may use the budget up: try again later", "budget_exceeded"
            ) from None

    async def _ask(self, exchange: Exchange, settings: RouteSettings, passed: Passage, body: bytes) -> OriginAnswer:
        answer = await self._ask_with(exchange, settings, passed, body)
        if answer.head.status not in REFUSED:
            return answer
        key = await self._renew(exchange.policy.session, settings)
        if not key.key or key.key == settings.key:
            return answer
        self._origins.let_go(settings.provider, answer)
        return await self._ask_with(exchange, settings.with_key(key), passed, body)

    async def _ask_with(
        self, exchange: Exchange, settings: RouteSettings, passed: Passage, body: bytes
    ) -> OriginAnswer:
        provider = settings.provider
        head = exchange.head
        came = end_to_end(head.headers)
        key = key_headers(provider, settings.key, oauth=settings.oauth)
        headers = headers_to_origin(came, provider.authority, key, len(body))
        try:
            return await self._origins.ask(exchange.policy.session, provider, head.method, passed.target, headers, body)
        except NotServed as error:
            raise ModelRefusal(error.status, str(error), "unreachable") from None
        except TimeoutError:
            raise ModelRefusal(504, f"{provider.name} did not answer in time", "timeout") from None
        except OSError:
            raise ModelRefusal(502, f"{provider.name} broke the connection off", "unreachable") from None

    async def _pass_on(
        self, exchange: Exchange, provider: ModelProvider, answer: OriginAnswer, meter: Meter | None
    ) -> None:
        """Raises OSError or TimeoutError if the answer is cut off: then the sandbox's connection ends in the middle,
        too."""
        head, near = answer.head, exchange.stream
        try:
            if 300 <= head.status < 400 and head.status != 304:
                words = f"{provider.name} answered with a redirect ({head.status}), which is not followed"
                raise ModelRefusal(502, words, "redirect")
            length = None if b"transfer-encoding" in head.headers else _length(head.headers)
            await near.write(head_back(head.status, head.headers, length=length))
            while piece := await answer.read():
                if meter is not None:
                    meter.feed(piece)
                await exchange.share.take(len(piece))
                await near.write(piece if length is not None else b"%x\r\n%b\r\n" % (len(piece), piece))
            if length is None:
                await near.write(b"0\r\n\r\n")
        except (OSError, TimeoutError) as error:
            raise StreamLost("the answer broke off") from error
        finally:
            self._origins.let_go(provider, answer)

    @contextlib.asynccontextmanager
    async def _body(self, exchange: Exchange) -> AsyncIterator[bytes]:
        """The body in pieces. Raises ModelRefusal; StreamLost if it is cut off."""
        session, length = exchange.policy.session, exchange.head.length
        room = MAX_BODY if length is None else length
        if room > MAX_BODY:
            raise ModelRefusal(413, f"a request has at most {MAX_BODY >> 20} MiB", "too_large")
        if room > min(ROOM_OF_ONE - self._room[session], (ROOM - self._room.total()) // 4):
            raise ModelRefusal(503, "too much is being sent to models at once: try again", "busy")
        self._room[session] += room
        try:
            if exchange.head.expects_continue:
                await exchange.stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read_body(exchange.stream, length)
            self._room[session] += len(body) - room
            room = len(body)
            yield body
        finally:
            self._room[session] -= room
            if not self._room[session]:
                del self._room[session]

    # -- keys ---------------------------------------------------------------------------------------------------------

    async def _with_key(self, session: str, settings: RouteSettings) -> RouteSettings:
        """The settings with a key that is valid for a moment. Raises ModelRefusal."""
        ends = settings.expires and settings.expires - time.time() < EARLY_SECONDS
        if settings.key and not ends:
            return settings
        key = await self._renew(session, settings)
        if key.key:
            return settings.with_key(key)
        if settings.key:
            return settings
        why = key.why or f"there is no key for {settings.name}: `holdfast credentials set {settings.name}` keeps one"
        raise ModelRefusal(401, why, "no_credential")

    async def git_token(self, session: str, settings: RouteSettings) -> ProviderKey:
        """For the session's repository; none where it needs none, or there is none."""
        return await self._renew(session, settings, GIT)

    async def _renew(self, session: str, settings: RouteSettings, route: str = "") -> ProviderKey:
        """The gateway's answer; an empty key if there is none. A session asks once at a time for each route, so that
        no session takes all the room for questions."""
        place = session, route or settings.name
        if (asking := self._asking.get(place)) is None:
            asking = asyncio.create_task(self._ask_gateway(*place), name=f"egress.ask {session}")
            self._asking[place] = asking
            asking.add_done_callback(lambda _: self._asking.pop(place))
        return await asyncio.shield(asking)

    async def _ask_gateway(self, session: str, route: str) -> ProviderKey:
        self._number += 1
        number = self._number
        answer: asyncio.Future[ProviderKey] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            if not self._tell(AskKey(number, session, route)):
                return ProviderKey()
            async with asyncio.timeout(KEY_SECONDS):
                return await answer
        except TimeoutError:
            return ProviderKey()
        finally:
            del self._asked[number]


def unheard(asked: AskedModel, passed: Passage, sent: int) -> MeterReading:
    """The estimate for a request whose sandbox hung up before its answer began. A model stops in the middle of a
    stream; another answer it makes to the end."""
    streamed = asked.streamed or ":streamGenerateContent" in passed.target
    return MeterReading(Tokens(sent // BYTES_A_TOKEN, 0 if streamed else asked.output), exact=False)


def _length(headers: dict[bytes, bytes]) -> int | None:
    value = headers.get(b"content-length", b"")
    return int(value) if value.isdigit() and len(value) < 19 else None


async def _read_body(near: ByteStream, length: int | None) -> bytes:
    if length is not None:
        return await near.read_exactly(length)
    pieces: list[bytes] = []
    left = MAX_BODY
    while size := await chunk_size(near):
        left -= size
        if left < 0:
            raise ModelRefusal(413, f"a request has at most {MAX_BODY >> 20} MiB", "too_large")
        pieces.append(await near.read_exactly(size))
        if await near.read_exactly(2) != b"\r\n":
            raise StreamLost("a chunk is longer than it says")
    await drop_trailers(near)
    return b"".join(pieces)


@contextlib.asynccontextmanager
async def _unless_it_goes(near: ByteStream) -> AsyncIterator[None]:
    """Cancels the block when the sandbox's end of the connection has gone: no one waits for the answer any more."""
    task = asyncio.current_task()
    assert task is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        if not await near.read(1):  # a second request on the connection is not served
            gone = True
            task.cancel()

    watching = asyncio.create_task(watch(), name="egress.watch")
    try:
        yield
    except asyncio.CancelledError:
        if gone and task.uncancel() == 0:
            raise StreamLost("the sandbox has hung up") from None
        raise
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({watching})
