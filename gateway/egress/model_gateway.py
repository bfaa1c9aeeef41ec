"""The gateway's end of the route to models: sends each session's keys and limits to the proxy, and receives its
spending.

The proxy has a session's keys from the start of its sandbox on, so that it works on while there is no gateway. It asks
for another key if a provider refuses one, or if there was none: then the session's policy is set again, too.

Spending comes as totals. They are kept in memory: after a restart the proxy sends them all again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from gateway.egress.budget import Spent
from gateway.egress.keeper import EgressKeeper
from gateway.egress.model_settings import (
    MODELS,
    SPENDING,
    AskKey,
    HeardSpending,
    ModelSetup,
    ProviderKey,
    RenewedKey,
    SpendingSettings,
    SpentTotals,
    counts,
    note_to_gateway,
    read_counts,
    read_route,
    route_settings,
)
from gateway.egress.providers import ModelProviders

log = structlog.get_logger()

MOST_ASKED = 1000  # keys being looked up at once; further questions are not answered


class ModelKeys(Protocol):
    async def find(self, user_id: str, provider: str) -> ProviderKey:
        """The key for this user's sessions; without one, `why` in words."""
        ...

    async def renew(self, user_id: str, provider: str) -> ProviderKey:
        """A key in place of a refused one: another one, or the same if there is no other."""
        ...


class ModelGateway:
    """`user_cost` is the limit of a user's spending per day, in nano-dollars. `on_spent` is called for each session
    with a new total."""

    def __init__(
        self,
        keeper: EgressKeeper,
        providers: ModelProviders,
        keys: ModelKeys,
        *,
        journal: Path,
        prices_file: Path | None = None,
        user_cost: int | None = None,
        on_spent: Callable[[str, Spent], None] = lambda session, spent: None,
    ) -> None:
        self.providers = providers
        self.by_provider: dict[str, Spent] = {}
        self._keeper = keeper
        self._keys = keys
        self._setup = ModelSetup(str(journal.absolute()), str(prices_file.absolute()) if prices_file else "")
        self.user_cost = user_cost
        self._on_spent = on_spent
        self._sessions: dict[str, Spent] = {}
        self._users: dict[str, Spent] = {}
        self._day = ""
        self._tasks: set[asyncio.Task[None]] = set()
        keeper.on_note[MODELS] = self._heard
        keeper.on_proxy.append(self._begin)
        if keeper.proxy is not None:
            self._begin()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def routes(
        self,
        session: str,
        user_id: str,
        *,
        cost: int | None = None,
        tokens: int | None = None,
        known: Spent | None = None,
    ) -> dict[str, msgspec.Raw]:
        """The part of a session's policy about models. Without a key the route itself answers that there is none."""
        spent = self.spent_by(session).or_more(known or Spent())
        limits = SpendingSettings(cost, tokens, self.user_cost, counts(spent) if spent.requests else ())
        routes: dict[str, msgspec.Struct] = {SPENDING: limits}
        for provider in self.providers.by_name.values():
            if not provider.is_git_host:
                routes[provider.name] = route_settings(provider, await self._keys.find(user_id, provider.name))
        return {name: msgspec.Raw(msgspec.json.encode(each)) for name, each in routes.items()}

    def spent_by(self, session: str) -> Spent:
        return self._sessions.get(session, Spent())

    def spent_today(self, user_id: str, day: str) -> Spent:
        return self._users.get(user_id, Spent()) if day == self._day else Spent()

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)

    # -- the proxy ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._keeper.note(MODELS, self._setup)

    def _heard(self, body: msgspec.Raw) -> None:
        match note_to_gateway(body):
            case SpentTotals() as totals:
                self._count(totals)
            case AskKey() as asked if len(self._tasks) < MOST_ASKED:
                task = asyncio.create_task(self._answer(asked), name=f"egress.key {asked.session}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _count(self, totals: SpentTotals) -> None:
        if totals.day != self._day:
            self._day, self._users = totals.day, {}
        self._users |= _read(totals.users)
        self.by_provider = _read(totals.providers)
        for session, spent in _read(totals.sessions).items():
            if self._sessions.get(session) != spent:
                self._sessions[session] = spent
                self._on_spent(session, spent)
        self._keeper.note(MODELS, HeardSpending(totals.number))

    async def _answer(self, asked: AskKey) -> None:
        key = ProviderKey()
        policy = self._keeper.policy(asked.session)
        if policy is not None and (raw := policy.routes.get(asked.provider)) is not None:
            with contextlib.suppress(msgspec.MsgspecError):
                settings = read_route(raw)
                key = await self._look(self._keys.renew if settings.key else self._keys.find, policy.user, asked)
                now = self._keeper.policy(asked.session)
                if key.key and key.key != settings.key and now is not None:
                    routes = {**now.routes, asked.provider: msgspec.Raw(msgspec.json.encode(settings.with_key(key)))}
                    self._keeper.set_policy(msgspec.structs.replace(now, routes=routes))
        self._keeper.note(MODELS, RenewedKey(asked.number, key))

    async def _look(
        self, ask: Callable[[str, str], Awaitable[ProviderKey]], user_id: str, asked: AskKey
    ) -> ProviderKey:
        try:
            return await ask(user_id, asked.provider)
        except Exception as error:
            log.warning("egress.key_unknown", session_id=asked.session, provider=asked.provider, cause=repr(error))
            return ProviderKey(why=f"the key for {asked.provider} cannot be read now: try again")


def _read(totals: Mapping[str, tuple[int, ...]]) -> dict[str, Spent]:
    return {name: read_counts(numbers) for name, numbers in totals.items()}
