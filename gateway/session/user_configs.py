"""Configurations of users' agents, as the store keeps them, and as running sessions have them.

All linked sessions of a user hold the same object: what its user changes is there at the next start of an agent. It is
forgotten with the last of them. Another gateway at the same store learns of a change when a session is linked anew.
"""

from collections.abc import Callable
from weakref import WeakValueDictionary

import msgspec
import structlog

from gateway.agents.config import NOTHING, AgentConfig, arguments, from_kept, home_files
from gateway.session.model.ports import HasSpec
from persistence.errors import StoreUnavailable
from persistence.ports import UserStore
from persistence.user_record import UserConfig
from sandbox.protocol.agent import NO_SETUP, AgentSetup, SetupFile

log = structlog.get_logger()


class HeldConfig:
    """A user's, as it is now."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config


class UserConfigs:
    """`default_agent` is the one of sessions that name none."""

    def __init__(self, users: UserStore, utcnow: Callable[[], float], default_agent: str = "") -> None:
        self._users = users
        self._utcnow = utcnow
        self._default_agent = default_agent
        self._held: WeakValueDictionary[str, HeldConfig] = WeakValueDictionary()

    async def read(self, user_id: str) -> tuple[AgentConfig, float | None]:
        """It, and when it was set. Raises StoreUnavailable."""
        kept = await self._users.config(user_id)
        return (NOTHING, None) if kept is None else (from_kept(kept.body), kept.set_at)

    async def put(self, user_id: str, config: AgentConfig) -> float:
        """Durable when this returns: when it was set. Raises StoreUnavailable."""
        now = self._utcnow()
        await self._users.put_config(UserConfig(user_id, config.canonical(), now))
        held = self._held.get(user_id)
        if held is not None:
            held.config = config
        return now

    async def hold(self, user_id: str) -> HeldConfig:
        """For as long as the caller has it. While the store is away, what is known here, or nothing: a session that
        cannot be configured starts all the same."""
        try:
            config, _ = await self.read(user_id)
        except StoreUnavailable as error:
            log.warning("config.not_read", cause=str(error))
            return self._held.setdefault(user_id, HeldConfig(NOTHING))
        held = self._held.setdefault(user_id, HeldConfig(config))
        held.config = config
        return held

    async def of_session(self, user_id: str, log: HasSpec) -> "SessionSetup":
        return SessionSetup(await self.hold(user_id), log, self._default_agent)


class SessionSetup:
    """Called, it says what a session's next agent process gets."""

    __slots__ = ("_default_agent", "_held", "_log")

    def __init__(self, held: HeldConfig, log: HasSpec, default_agent: str) -> None:
        self._held, self._log, self._default_agent = held, log, default_agent

    def __call__(self) -> AgentSetup:
        spec = self._log.spec
        agent = (spec.agent_name or self._default_agent).partition("@")[0] if not spec.agent else ""
        own = NOTHING if spec.config is None else msgspec.convert(spec.config, AgentConfig)
        config = own.over(self._held.config)
        files = tuple(SetupFile(path, content) for path, content in home_files(agent, config))
        words = arguments(agent, config)
        return AgentSetup(files, words) if files or words else NO_SETUP
