"""The gateway's end of the route to models: sends each session's keys and limits to the proxy, and receives its
spending.

The proxy has a session's keys from the start of its sandbox on, so that it works on while there is no gateway. It asks
for another key if a provider refuses one, or if there was none: then the session's policy is set again, too.

Spending comes as totals. They are kept in memory: after a restart the proxy sends them all again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from gateway.egress.budget import NO_LIMIT, SpendLimit, Spent
from gateway.egress.keeper import EgressKeeper
from gateway.egress.model_settings import (
    MODELS,
    SPENDING,
    AskKey,
    HeardSpending,
    ModelSetup,
    ProviderKey,
    RenewedKey,
    RouteSettings,
    SpendingSettings,
    SpentTotals,
    counts,
    note_to_gateway,
    read_counts,
    read_route,
    route_settings,
)
from gateway.egress.providers import ModelProvider, ModelProviders
from gateway.egress.repositories import ROUTE as GIT
from gateway.egress.repositories import GitRepository, basic, host_of, repository_of
from gateway.egress.spent_json import grown

log = structlog.get_logger()

MOST_ASKED = 1000  # keys being looked up at once; further questions are not answered


class ModelKeys(Protocol):
    async def find(self, user_id: str, provider: str) -> ProviderKey:
        """The key for this user's sessions; without one, `why` in words."""
        ...

    async def has(self, user_id: str, provider: str) -> bool:
        """Whether there is one, usable or not. Raises nothing."""
        ...

    async def of_repository(
        self, user_id: str, provider: ModelProvider, repository: GitRepository, *, fresh: bool = False
    ) -> ProviderKey:
        """A token for that one repository. `fresh`: the one there was is refused."""
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
        on_used: Callable[[str, Spent], None] = lambda provider, more: None,
    ) -> None:
        self.providers = providers
        self.by_provider: dict[str, Spent] = {}
        self._keeper = keeper
        self._keys = keys
        self._setup = ModelSetup(str(journal.absolute()), str(prices_file.absolute()) if prices_file else "")
        self.user_cost = user_cost
        self._on_spent = on_spent
        self._on_used = on_used
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

    def routes(
        self, session: str, user_id: str, limit: SpendLimit = NO_LIMIT, repo_url: str | None = None
    ) -> dict[str, msgspec.Raw]:
        """The part of a session's policy about models and its repository. Its keys follow in a moment; until then a
        request asks for its own."""
        spent = self.spent_by(session)
        settings = SpendingSettings(limit.cost, limit.tokens, self.user_cost, counts(spent) if spent.requests else ())
        routes: dict[str, msgspec.Struct] = {SPENDING: settings}
        for provider in self.providers.by_name.values():
            if not provider.is_git_host:
                routes[provider.name] = route_settings(provider)
        if repo_url is not None and (repository := repository_of(repo_url)) is not None:
            host = route_settings(host_of(repository, self.providers))
            routes[GIT] = msgspec.structs.replace(host, repository=f"{repository.host}/{repository.path}")
        self._work(self._fill(session, user_id), f"egress.keys {session}")
        return {name: msgspec.Raw(msgspec.json.encode(each)) for name, each in routes.items()}

    async def providers_of(self, user_id: str) -> list[str]:
        """Those for which the user's sessions have a key, as far as it can be told now."""
        try:
            return [name for name in self.providers.by_name if await self._keys.has(user_id, name)]
        except Exception as error:
            log.warning("egress.keys_unknown", cause=repr(error))
            return []

    async def clone_key(self, user_id: str, repo_url: str) -> str:
        """What opens that repository, as HTTP's Basic has it; "": nothing is known to."""
        repository = repository_of(repo_url)
        host = None if repository is None else self.providers.git_host(repository.host)
        if repository is None or host is None:
            return ""

        async def look(user_id: str, provider: str) -> ProviderKey:
            return await self._keys.of_repository(user_id, host, repository)

        found = await self._look(look, user_id, "", host.name)
        return basic(host.key_user, found.key) if found.key else ""

    def keys_changed(self, user_id: str, *, of_everybody: bool = False) -> None:
        """Credentials were set or deleted: send the present ones to running sessions."""
        for policy in self._keeper.policies():
            if of_everybody or policy.user == user_id:
                self._work(self._fill(policy.session, policy.user), f"egress.keys {policy.session}")

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
                self._work(self._answer(asked), f"egress.key {asked.session}")

    def _count(self, totals: SpentTotals) -> None:
        if totals.day != self._day:
            self._day, self._users = totals.day, {}
        self._users |= _read(totals.users)
        for provider, spent in _read(totals.providers).items():
            self._on_used(provider, grown(spent, self.by_provider.get(provider, Spent())))
            self.by_provider[provider] = spent
        for session, spent in _read(totals.sessions).items():
            if self._sessions.get(session) != spent:
                self._sessions[session] = spent
                self._on_spent(session, spent)
        self._keeper.note(MODELS, HeardSpending(totals.number))

    def _work(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fill(self, session: str, user_id: str) -> None:
        """Update the keys of a session's policy from the vault. A key that cannot be read now stays as it is."""
        keys = {
            name: await self._try(self._keys.find, user_id, session, name)
            for name, provider in self.providers.by_name.items()
            if not provider.is_git_host
        }
        policy = self._keeper.policy(session)
        if policy is None:
            return
        routes = dict(policy.routes)
        for name, key in keys.items():
            if key is None:
                continue
            with contextlib.suppress(KeyError, msgspec.MsgspecError):
                routes[name] = msgspec.Raw(msgspec.json.encode(read_route(routes[name]).with_key(key)))
        if routes != policy.routes:
            self._keeper.set_policy(msgspec.structs.replace(policy, routes=routes))

    async def _answer(self, asked: AskKey) -> None:
        key = ProviderKey()
        policy = self._keeper.policy(asked.session)
        if policy is not None and (raw := policy.routes.get(asked.provider)) is not None:
            with contextlib.suppress(msgspec.MsgspecError):
                settings = read_route(raw)
                key = await self._key_for(asked, policy.user, settings)
                now = self._keeper.policy(asked.session)
                if key.key and key.key != settings.key and now is not None:
                    routes = {**now.routes, asked.provider: msgspec.Raw(msgspec.json.encode(settings.with_key(key)))}
                    self._keeper.set_policy(msgspec.structs.replace(now, routes=routes))
        self._keeper.note(MODELS, RenewedKey(asked.number, key))

    async def _key_for(self, asked: AskKey, user_id: str, settings: RouteSettings) -> ProviderKey:
        if settings.repository:
            repository = GitRepository(*settings.repository.split("/", 1))

            async def of_repository(user_id: str, provider: str) -> ProviderKey:
                known = self.providers.get(provider)
                if known is None:
                    return ProviderKey()
                return await self._keys.of_repository(user_id, known, repository, fresh=bool(settings.key))

            return await self._look(of_repository, user_id, asked.session, settings.name)
        ask = self._keys.renew if settings.key else self._keys.find
        return await self._look(ask, user_id, asked.session, asked.provider)

    async def _look(
        self, ask: Callable[[str, str], Awaitable[ProviderKey]], user_id: str, session: str, provider: str
    ) -> ProviderKey:
        found = await self._try(ask, user_id, session, provider)
        return found or ProviderKey(why=f"the key for {provider} cannot be read now: try again")

    async def _try(
        self, ask: Callable[[str, str], Awaitable[ProviderKey]], user_id: str, session: str, provider: str
    ) -> ProviderKey | None:
        """None: it cannot be read now."""
        try:
            return await ask(user_id, provider)
        except Exception as error:
            log.warning("egress.key_unknown", session_id=session, provider=provider, cause=repr(error))
            return None


def _read(totals: Mapping[str, tuple[int, ...]]) -> dict[str, Spent]:
    return {name: read_counts(numbers) for name, numbers in totals.items()}
