"""Keeps spending on the disk and reports it to the gateway: the shell of `budget.py`, in the proxy.

A change is in the journal before its request goes out, and on the disk itself at most SYNC_SECONDS later: kill -9 loses
none, a power cut the last moment. While it cannot be written, requests with a budget are refused. The journal is
rewritten when it has grown by COMPACT_BYTES. Totals are sent until the gateway confirms them; a new gateway gets all of
them.

A request that has to wait for others under way does so for at most WAIT_SECONDS; MOST_WAITING of a session wait,
further ones are refused at once.
"""

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import structlog

from gateway.egress.budget import NO_LIMIT, Ledger, Over, SpendEntry, SpendLimit, Spent, read_journal
from gateway.egress.meter import MeterReading, Tokens
from gateway.egress.model_requests import AskedModel
from gateway.egress.model_settings import SpendingSettings, SpentTotals, counts, read_counts
from gateway.egress.prices import Price, read_prices

log = structlog.get_logger()

COMPACT_BYTES = 4 << 20
SYNC_SECONDS, TELL_SECONDS, HEAR_SECONDS = 1.0, 0.2, 5.0
WAIT_SECONDS, MOST_WAITING = 300.0, 32
TOLD_AT_ONCE = 80  # sessions, and users, in one note: a packet holds that many with the longest names
OURS = Path(__file__).with_name("prices.toml")
NO_PRICE = (
    "the model {} has no price here, so a budget in USD cannot be kept: the operator can give it one "
    "(HOLDFAST_PRICES_FILE)"
)
NOT_WRITTEN = (
    "the journal of spending cannot be written, so a budget cannot be kept: the operator has to look at the disk "
    "(egress.journal_not_written in run/egress.log)"
)


class BudgetRefused(Exception):
    """The text is for the user."""


class Spending:
    """`tell` sends totals to the gateway, and returns whether they were sent."""

    def __init__(self, tell: Callable[[SpentTotals], bool]) -> None:
        self._tell = tell
        self.ledger = Ledger()
        self.prices = read_prices(OURS.read_bytes())
        self._journal: int | None = None
        self._path: Path | None = None
        self._bytes = 0
        self._sync: asyncio.TimerHandle | None = None
        self._settled = asyncio.Event()
        self._waiting: Counter[str] = Counter()
        self._names = 0
        self._providers: dict[str, Spent] = {}
        self._entries: dict[str, tuple[SpendEntry, str]] = {}
        self._untold: set[str] = set()
        self._untold_users: set[str] = set()
        self._number = 0
        self._telling: asyncio.TimerHandle | None = None
        self._told: tuple[int, set[str], set[str]] | None = None

    def open(self, journal: str, prices_file: str) -> None:
        """Apply the gateway's first note; the same note again changes only the prices."""
        try:
            files = [Path(prices_file).read_bytes()] if prices_file else []
            self.prices = read_prices(*files, OURS.read_bytes())
        except (OSError, ValueError) as error:  # the gateway has checked it: it has changed since
            log.warning("egress.prices_unread", cause=str(error))
        if self._path is None and journal:
            self._path = Path(journal)
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
            kept, self.ledger = self.ledger, read_journal(lines)
            for session, spent in kept.sessions().items():
                self.ledger.know(session, spent)
            self._write()
        self.tell_all()

    # -- a request ----------------------------------------------------------------------------------------------------

    async def enter(
        self, session: str, user: str, provider: str, settings: SpendingSettings, asked: AskedModel, sent: int
    ) -> str:
        """Waits while others under way may use the budget up. Raises BudgetRefused."""
        if settings.known:
            self.ledger.know(session, read_counts(settings.known))
        price = self.prices.of(asked.model)
        if price is None and (settings.cost is not None or settings.user_cost is not None):
            raise BudgetRefused(NO_PRICE.format(asked.model or "that was asked for"))
        most = _most(price, asked, sent)
        limits = SpendLimit(settings.cost, settings.tokens), SpendLimit(settings.user_cost)
        self._names += 1
        name = f"{os.getpid()}.{time.time_ns()}.{self._names}"
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                entry = SpendEntry(session, user, today(), most)
                verdict = self.ledger.enter(name, entry, *limits)
                if isinstance(verdict, Over):
                    raise BudgetRefused(str(verdict))
                if verdict:
                    break
                await self._wait(session)
        if not self._write() and limits != (NO_LIMIT, NO_LIMIT):
            self.ledger.settle(name, Spent())
            self._wake()
            raise BudgetRefused(NOT_WRITTEN)
        self._entries[name] = entry, provider
        return name

    def settle(self, name: str, reading: MeterReading | None, asked: AskedModel) -> None:
        """Enter the real cost; None: the request cost nothing."""
        entry, provider = self._entries.pop(name)
        spent = Spent(1)
        if reading is not None:
            cost = self._cost(asked.model, reading)
            unpriced = reading.tokens.total if cost is None else 0
            spent = Spent(1, reading.tokens, cost or 0, unpriced, int(not reading.exact))
        self.ledger.settle(name, spent)
        self._write()
        self._providers[provider] = self._providers.get(provider, Spent()) + spent
        self._untold.add(entry.session)
        self._untold_users.add(entry.user)
        self._tell_soon(TELL_SECONDS)
        self._wake()

    def _cost(self, asked: str, reading: MeterReading) -> int | None:
        """Of a request that another model answered than was asked for, the greater cost of the two: a request may name
        several. The asked name may be a short form of the answer's."""
        names = [asked]
        if not reading.model.startswith(asked.rpartition("/")[2] or "/"):
            names.append(reading.model)
        prices = [price for name in names if (price := self.prices.of(name)) is not None]
        return max((price.cost(reading.tokens) for price in prices), default=None)

    def _wake(self) -> None:
        """A request has ended: those that wait look again."""
        self._settled.set()
        self._settled = asyncio.Event()

    async def _wait(self, session: str) -> None:
        if self._waiting[session] >= MOST_WAITING:
            raise BudgetRefused("as many requests as may wait for this session's budget do so: try again later")
        self._waiting[session] += 1
        try:
            await self._settled.wait()
        finally:
            self._waiting[session] -= 1
            if not self._waiting[session]:
                del self._waiting[session]

    # -- the journal --------------------------------------------------------------------------------------------------

    def _write(self) -> bool:
        """Whether the journal has everything. One that could not be written is written anew at the next change."""
        lines = self.ledger.take_lines()
        if self._path is None:
            return True
        try:
            if self._journal is None or self._bytes > COMPACT_BYTES:
                self._compact()
            else:
                _write_all(self._journal, lines)
                self._bytes += len(lines)
        except OSError as error:
            self._close_journal()
            with contextlib.suppress(OSError):  # the log is on the same disk
                log.warning("egress.journal_not_written", cause=error.strerror or str(error))
            return False
        if self._sync is None:
            self._sync = asyncio.get_running_loop().call_later(SYNC_SECONDS, self._sync_now)
        return True

    def _close_journal(self) -> None:
        if self._journal is not None:
            os.close(self._journal)
        self._journal = None

    def _sync_now(self) -> None:
        self._sync = None
        if self._journal is not None:
            copy = os.dup(self._journal)
            done = asyncio.get_running_loop().run_in_executor(None, os.fdatasync, copy)
            done.add_done_callback(lambda _: os.close(copy))

    def _compact(self) -> None:
        """Write a short journal beside the old one, then put it in its place."""
        assert self._path is not None
        self.ledger.forget_days(today(), _yesterday())
        new = self._path.with_name(f"{self._path.name}.new")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, self.ledger.whole())
            os.fsync(descriptor)
            new.replace(self._path)
        except OSError:
            os.close(descriptor)
            raise
        self._close_journal()
        self._journal, self._bytes = descriptor, 0

    # -- the gateway --------------------------------------------------------------------------------------------------

    def tell_all(self) -> None:
        self._expect_no_answer()
        self._untold = set(self.ledger.sessions())
        self._untold_users = set(self.ledger.users(today()))
        self._tell_soon(0)

    def heard(self, number: int) -> None:
        if self._told is not None and self._told[0] == number:
            self._expect_no_answer()
            if self._untold or self._untold_users:
                self._tell_soon(TELL_SECONDS)

    def _expect_no_answer(self) -> None:
        self._told = None
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _tell_soon(self, seconds: float) -> None:
        if self._told is None and self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(seconds, self._tell_now)

    def _tell_now(self) -> None:
        """Send the totals again that were not confirmed in time."""
        self._telling = None
        if self._told is not None:
            _, sessions, users = self._told
            self._untold |= sessions
            self._untold_users |= users
            self._told = None
        sessions = set(list(self._untold)[:TOLD_AT_ONCE])
        users = set(list(self._untold_users)[:TOLD_AT_ONCE])
        self._number += 1
        day = today()
        totals = SpentTotals(
            self._number,
            day,
            {session: counts(self.ledger.of_session(session)) for session in sessions},
            {user: counts(self.ledger.of_user(user, day)) for user in users},
            {provider: counts(spent) for provider, spent in self._providers.items()},
        )
        if not self._tell(totals):
            return  # the next gateway gets all
        self._untold -= sessions
        self._untold_users -= users
        self._told = self._number, sessions, users
        self._telling = asyncio.get_running_loop().call_later(HEAR_SECONDS, self._tell_now)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _most(price: Price | None, asked: AskedModel, sent: int) -> Spent:
    """A token is at least one byte of the request."""
    tokens = Tokens(input=sent, output=asked.output)
    cost = price.most(sent, asked.output) if price else 0
    return Spent(1, tokens, cost, 0 if price else tokens.total)


def today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def _yesterday() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86_400))
