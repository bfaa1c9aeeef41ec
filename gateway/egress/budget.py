"""Spending of sessions and users on models, and the decision whether they may spend more. Pure.

A request is entered with its highest possible cost before it goes out, and settled with its real cost. It may go out
while the sum of all that is spent and under way stays below the limit, so in the end no more than the limit and one
request is spent, however many were under way. Requests under way only keep a new one *waiting*; spent amounts refuse
it.

Every change is a line of a journal, taken with `take_lines` and written before the request goes out. A ledger that is
read back from its journal counts a request that was never settled by its estimate, because its real cost is lost. A
line that was cut off, or that is unknown, is left out. A long journal is replaced by a short one (`whole`).

Bounds: MOST_SESSIONS sessions, then the one that asked longest ago is dropped, and comes back with the gateway's total
for it (`know`); users of today and yesterday.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from gateway.egress.meter import Tokens
from gateway.egress.prices import NANO

MOST_SESSIONS = 10_000
NO_TOKENS = Tokens()


@dataclass(frozen=True, slots=True)
class Spent:
    """`cost` is in nano-dollars, for models with a price. `unpriced` are the tokens of models without one, `estimated`
    the requests whose answers did not state their tokens."""

    requests: int = 0
    tokens: Tokens = NO_TOKENS
    cost: int = 0
    unpriced: int = 0
    estimated: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
        )

    def or_more(self, other: "Spent") -> "Spent":
        """The greater of each number."""
        pairs = zip(_numbers(self), _numbers(other), strict=True)
        return _spent([max(pair) for pair in pairs])


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """None: no limit. `cost` is in nano-dollars."""

    cost: int | None = None
    tokens: int | None = None


NO_LIMIT = SpendLimit()


@dataclass(frozen=True, slots=True)
class SpendEntry:
    """A request under way. `most` is its highest possible cost, `day` is UTC's."""

    session: str
    user: str
    day: str
    most: Spent


@dataclass(frozen=True, slots=True)
class Over:
    """A limit that is used up. `spent` and `limit` are nano-dollars, or tokens."""

    of_user: bool
    in_usd: bool
    spent: int
    limit: int

    def __str__(self) -> str:
        whose = "your budget of today" if self.of_user else "this session's budget"
        shown = (f"{self.spent / NANO:.4f}", f"{self.limit / NANO:.2f} USD") if self.in_usd else (
            str(self.spent), f"{self.limit} tokens")  # fmt: skip
        setting = "HOLDFAST_BUDGET_PER_USER, it begins anew at 00:00 UTC" if self.of_user else "budget, at create"
        return f"{whose} is used up: {shown[0]} of {shown[1]} ({setting})"


@dataclass(slots=True)
class Account:
    spent: Spent = field(default_factory=Spent)
    open: dict[str, Spent] = field(default_factory=dict)

    def over(self, budget: SpendLimit, *, of_user: bool) -> Over | bool:
        """The limit that is used up; else whether a request has to wait for those under way."""
        waits = False
        for limit, number, in_usd in ((budget.cost, _cost, True), (budget.tokens, _total, False)):
            if limit is not None:
                spent = number(self.spent)
                if spent >= limit:
                    return Over(of_user, in_usd, spent, limit)
                waits = waits or spent + sum(map(number, self.open.values())) >= limit
        return waits


class Ledger:
    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Account] = OrderedDict()
        self._users: dict[tuple[str, str], Account] = {}  # by user and day
        self._open: dict[str, SpendEntry] = {}
        self._lines: list[bytes] = []

    def enter(
        self, name: str, entry: SpendEntry, session: SpendLimit = NO_LIMIT, user: SpendLimit = NO_LIMIT
    ) -> Over | bool:
        """Enter a request. Return True if it may go out, False if it must wait for others under way, or the limit that
        is used up. `name` is never used twice."""
        accounts = self._accounts(entry)
        waits = False
        for account, budget, of_user in ((accounts[0], session, False), (accounts[1], user, True)):
            over = account.over(budget, of_user=of_user)
            if isinstance(over, Over):
                return over
            waits = waits or over
        if waits:
            return False
        self._enter(name, entry)
        self._say("open", name, entry.session, entry.user, entry.day, *_numbers(entry.most))
        return True

    def settle(self, name: str, spent: Spent) -> None:
        """Replace the estimate of an entered request with its real cost. Once for each."""
        self._settle(name, spent)
        self._say("settled", name, *_numbers(spent))

    def know(self, session: str, spent: Spent) -> None:
        """The session has spent at least so much, as the gateway reports."""
        account = self._session(session)
        more = account.spent.or_more(spent)
        if more != account.spent:
            account.spent = more
            self._say("session", session, *_numbers(more))

    def of_session(self, session: str) -> Spent:
        account = self._sessions.get(session)
        return account.spent if account else Spent()

    def of_user(self, user: str, day: str) -> Spent:
        account = self._users.get((user, day))
        return account.spent if account else Spent()

    def sessions(self) -> dict[str, Spent]:
        return {name: account.spent for name, account in self._sessions.items()}

    def users(self, day: str) -> dict[str, Spent]:
        return {user: account.spent for (user, of), account in self._users.items() if of == day}

    def forget_days(self, *kept: str) -> None:
        """Drop the users' accounts of other days, except those with requests under way."""
        for key, account in list(self._users.items()):
            if key[1] not in kept and not account.open:
                del self._users[key]

    def take_lines(self) -> bytes:
        """Return the lines to be written, all whole, and forget them."""
        lines, self._lines = b"".join(self._lines), []
        return lines

    def whole(self) -> bytes:
        """A journal with the whole ledger."""
        self._lines = []
        for name, account in self._sessions.items():
            self._say("session", name, *_numbers(account.spent))
        for (user, day), account in self._users.items():
            self._say("user", user, day, *_numbers(account.spent))
        for name, entry in self._open.items():
            self._say("open", name, entry.session, entry.user, entry.day, *_numbers(entry.most))
        return self.take_lines()

    def _enter(self, name: str, entry: SpendEntry) -> None:
        for account in self._accounts(entry):
            account.open[name] = entry.most
        self._open[name] = entry

    def _settle(self, name: str, spent: Spent) -> None:
        entry = self._open.pop(name)
        for account in self._accounts(entry):
            account.open.pop(name, None)
            account.spent += spent

    def _accounts(self, entry: SpendEntry) -> tuple[Account, Account]:
        return self._session(entry.session), self._users.setdefault((entry.user, entry.day), Account())

    def _session(self, name: str) -> Account:
        account = self._sessions.setdefault(name, Account())
        self._sessions.move_to_end(name)
        if len(self._sessions) > MOST_SESSIONS:
            unused = next((each for each, known in self._sessions.items() if not known.open and each != name), None)
            if unused is not None:
                del self._sessions[unused]
        return account

    def _say(self, *words: str | int) -> None:
        self._lines.append(msgspec.json.encode(words) + b"\n")

    def _hear(self, words: list[Any]) -> None:
        """Apply a line. Raises KeyError, TypeError or ValueError for an unknown one."""
        match words:
            case ["open", str(name), str(session), str(user), str(day), *numbers]:
                self._enter(name, SpendEntry(session, user, day, _spent(numbers)))
            case ["settled", str(name), *numbers]:
                self._settle(name, _spent(numbers))
            case ["session", str(session), *numbers]:
                self._session(session).spent = _spent(numbers)
            case ["user", str(user), str(day), *numbers]:
                self._users.setdefault((user, day), Account()).spent = _spent(numbers)
            case _:
                raise ValueError("no line of ours")


def read_journal(lines: Iterable[bytes]) -> Ledger:
    """Requests that were still open count by their estimate."""
    ledger = Ledger()
    for line in lines:
        try:
            ledger._hear(msgspec.json.decode(line, type=list))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            continue
    for name, entry in list(ledger._open.items()):
        ledger._settle(name, replace(entry.most, estimated=1))
    return ledger


def _cost(spent: Spent) -> int:
    return spent.cost


def _total(spent: Spent) -> int:
    return spent.tokens.total


def _numbers(spent: Spent) -> tuple[int, ...]:
    tokens = spent.tokens
    counts = (tokens.input, tokens.output, tokens.cache_read, tokens.cache_write)
    return (spent.requests, *counts, spent.cost, spent.unpriced, spent.estimated)


def _spent(numbers: list[Any]) -> Spent:
    if len(numbers) != 8 or not all(type(each) is int and each >= 0 for each in numbers):
        raise ValueError("not eight counts")
    requests, given, made, read, written, cost, unpriced, estimated = numbers
    return Spent(requests, Tokens(given, made, read, written), cost, unpriced, estimated)
