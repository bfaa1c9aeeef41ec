"""The composition root: the only module that names adapters. It turns settings into a House, ready to be served.

Constructors do no I/O. The lifespan opens store, queue and sessions (with their sandboxes) in that order, and closes
them in reverse. An error that keeps the gateway from opening is kept in `House.problem`, in words for the operator.
"""

import asyncio
import dataclasses
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from gateway.agents.agents import Agents
from gateway.agents.shelf import AgentShelf
from gateway.auth.identity import Identity
from gateway.auth.origin import Origins
from gateway.auth.policy import PolicyMiddleware
from gateway.auth.signin import SignIn
from gateway.auth.tickets import Tickets
from gateway.auth.tokens import KeySource, SharedSecret, TokenVerifier
from gateway.config.data_dir import DataDirBusy
from gateway.config.settings import Secrets, Settings, SettingsError, read_sandbox_env
from gateway.config.values import widest
from gateway.config.version import version
from gateway.egress.access import EgressAccess
from gateway.egress.keeper import EgressKeeper
from gateway.egress.messages import Denied, Setup
from gateway.egress.model_gateway import ModelGateway
from gateway.egress.policy import read_text, shown
from gateway.egress.spent_json import shown_spent
from gateway.http.credentials.config import ConfigRoutes
from gateway.http.credentials.credentials import CredentialRoutes
from gateway.http.messages.dead_letters import DeadLetterRoutes, letters_kept
from gateway.http.messages.export import ExportRoutes
from gateway.http.messages.messages import MessageRoutes
from gateway.http.ops.health import HealthRoutes
from gateway.http.ops.openapi import OpenApiRoutes
from gateway.http.ops.orphans import OrphanRoutes
from gateway.http.ops.providers import ProviderRoutes
from gateway.http.responses import EXCEPTION_HANDLERS
from gateway.http.sessions.agents import AgentRoutes
from gateway.http.sessions.faults import FaultRoutes
from gateway.http.sessions.lifecycle import SandboxRoutes
from gateway.http.sessions.listing import SessionRoutes
from gateway.http.sessions.logs import LogRoutes
from gateway.http.sessions.pending import PendingRoutes
from gateway.http.sessions.shares import ShareRoutes
from gateway.http.sessions.tickets import TicketRoutes
from gateway.http.site.fallback_page import FallbackPage
from gateway.http.site.signin import SigninRoutes
from gateway.http.site.static_page import BUILT, BadPage, PageRoutes, read_page
from gateway.http.terminals import TerminalRoutes
from gateway.http.workspace.files import FileRoutes
from gateway.http.workspace.snapshots import SnapshotRoutes
from gateway.limits.images import ImageRule
from gateway.limits.network import NetworkRule
from gateway.limits.quota import UserLimits
from gateway.limits.rate import Budgets
from gateway.limits.resources import ResourceRule
from gateway.limits.start_queue import StartLimits
from gateway.limits.start_turns import StartTurns
from gateway.limits.usage import Rates, shown_limits
from gateway.maintenance.retention import Retention, RetentionPolicy
from gateway.maintenance.scheduler import Chore, MaintenanceScheduler
from gateway.maintenance.workspace_bytes import WorkspaceBytes
from gateway.routing.route import served
from gateway.server.front_door import FrontDoor
from gateway.session.model.delivery_window import WindowLimits
from gateway.session.model.ports import SessionLimits
from gateway.session.parts import SessionParts
from gateway.session.recording.files import RecordingFiles, prepare_directory
from gateway.session.store_events import StoreEvents
from gateway.session.workspace.keeping import Keeping, WorkspaceLimits
from gateway.sockets.attach import SocketAttacher
from gateway.sockets.chat import ChatSocket
from gateway.sockets.events import EventsSocket
from gateway.sockets.raw import RawSocket
from gateway.sockets.terminal import TerminalSocket
from gateway.telemetry.telemetry import REDACTOR, Metrics
from gateway.telemetry.watchdog import Watchdog
from gateway.vault.credential import EVERYBODY
from gateway.vault.keeper import VaultKeeper
from gateway.vault.model_keys import VaultKeys
from gateway.vault.oauth import CLIENTS
from gateway.vault.vault import Vault
from gateway.wiring import spool_owner
from gateway.wiring.models import JOURNAL, make_providers, user_cost
from gateway.wiring.objects import check_objects, make_objects
from persistence.errors import CannotOpen, NoRoom, StoreBroken, StoreUnavailable
from persistence.ports import MessageStore
from persistence.queue.backlog import QueueLimits
from persistence.queue.queue import FULL, PersistenceQueue
from persistence.sqlite.file import REPLACED
from persistence.sqlite.file_identity import FileIdentity, database_files
from sandbox.ports.fleet import Fleet
from sandbox.ports.resources import ResourceLimits
from sandbox.ports.sandbox import SandboxFailed
from sandbox.protocol.tree import ScanAsk, TreeLimits
from sandbox.providers.several import Fleets
from sync.machine.state import SyncLimits
from sync.ports import ObjectsRefused, ObjectsUnavailable
from sync.snapshots.service import SnapshotLimits, SnapshotService

if TYPE_CHECKING:
    from sandbox.providers.bridge_config import TerminalSettings

log = structlog.get_logger()

RETENTION_FIRST, RETENTION_EVERY = 10.0, 3600.0
LETTERS_FIRST, LETTERS_EVERY = 1.0, 60.0
COUNT_FIRST, COUNT_EVERY = 0.0, 600.0
COLLECT_FIRST, COLLECT_EVERY = 600.0, 6 * 3600.0
FILES_EVERY = ROOM_EVERY = 1.0
INSTALLATION_SECONDS = 5.0  # the longest wait for a store that is away
PROVIDERS_EVERY = 10.0
VAULT_EVERY = 60.0
RUNS_AS_ROOT = "the gateway runs as root, and so do its sandboxes on the host: run it as a user of its own"
RECORDS = "HOLDFAST_RECORD_SESSIONS is set: every conversation is recorded there, and only you remove the files"
DEMO_IS_ON = "HOLDFAST_DEMO is on and others can reach this gateway: its users may kill and cut their own sessions"
TRUSTS_EVERYBODY = (
    "HOLDFAST_TRUSTED_PROXIES has {}: every client may choose the address that is counted and logged, and the name in "
    "links; name only your proxies"
)
PROVIDERS_GONE = "HOLDFAST_GONE_PROVIDERS: sandboxes at these providers count as ended, and unsynced files as lost"


@runtime_checkable
class Follows(Protocol):
    """A store with a first stage here: accepted records follow to their final place."""

    @property
    def failing(self) -> str | None:
        """The reason why records do not get there at the moment; None if they do."""
        ...

    def stats(self) -> dict[str, float]: ...


@runtime_checkable
class OnDisk(Protocol):
    """A store that loads sessions from a disk of this machine."""

    @property
    def full(self) -> bool:
        """True if a write found no room, and `try_room` has found none since."""
        ...

    async def try_room(self) -> None:
        """Try to write again. Raises StoreUnavailable."""
        ...


def make_store(settings: Settings, secrets: Secrets, on_death: Callable[[BaseException], None]) -> MessageStore:
    """The store that the settings ask for, with a first stage in the data directory where it is elsewhere."""
    if settings.store.kind == "postgresql":
        from persistence.spool.spool import Spool
        from persistence.spool.store import SpooledStore

        spool = Spool(settings.spool_path, max_bytes=settings.spool_bytes)
        return SpooledStore(make_database(settings), spool, random.Random(), on_death=on_death)
    if settings.store.kind == "http":
        from persistence.http_sink.store import HttpStore
        from sandbox.client.http_client import connect_tcp

        token = secrets.internal_token.get_secret_value()
        address = settings.store.get_secret_value()
        return HttpStore(address, token, settings.spool_path, connect_tcp, rng=random.Random())
    return make_database(settings)


def make_database(settings: Settings) -> MessageStore:
    """The store that has a schema to migrate: the database itself; for an HTTP sink, its index."""
    if settings.store.kind == "postgresql":
        from persistence.postgres.store import PostgresStore

        return PostgresStore(settings.store.get_secret_value(), pool_size=settings.store_pool)
    from persistence.sqlite.store import SqliteStore

    return SqliteStore(settings.store.path if settings.store.kind == "sqlite" else settings.spool_path)


def make_fleets(
    settings: Settings,
    *,
    data_dir: Path | None = None,
    warn: Callable[[str], None] | None = None,
    met_limit: Callable[[str, str], None] = lambda provider, limit: None,
    pulled: Callable[[str, str, float], None] = lambda provider, result, seconds: None,
    installation: Callable[[str], Awaitable[str | None]] | None = None,
) -> list[Fleet]:
    """The fleets that the settings ask for, the one of new sessions first. `met_limit` is called when a program meets a
    limit of its sandbox, by provider; `pulled` for each pull of an image, with its result; `installation` gets a
    proposed id and returns the one that the store keeps. Raises SettingsError if the sandboxes' env file or the
    registries' logins cannot be used."""
    from sandbox.providers.bridge_config import TerminalSettings

    if data_dir is not None and not settings.agents_dir.is_dir():  # a look at this machine, which changes nothing
        settings = dataclasses.replace(settings, agents_dir=data_dir / "agents")
    env_file = settings.sandbox_env_file
    base_env = read_sandbox_env(env_file) if env_file is not None else {}
    REDACTOR.add(*base_env.values())
    terminals = TerminalSettings(
        shell=settings.shell,
        sizes=settings.terminal_size,
        ring_bytes=settings.terminal_ring,
        hold_seconds=settings.terminal_hold,
        scrollback=settings.terminal_scrollback,
        most=settings.terminals,
        idle_seconds=settings.terminal_idle,
    )
    make: dict[str, Callable[..., Fleet]] = {
        "local": make_local_fleet,
        "docker": partial(make_container_fleet, installation, pulled=pulled),
    }
    told = warn or (lambda text: log.warning("sandbox.warning", text=text))
    names = dict.fromkeys((settings.sandbox, *settings.providers))
    return [make[name](settings, data_dir or settings.data_dir, base_env, terminals, told, met_limit) for name in names]


def make_container_fleet(
    installation: Callable[[str], Awaitable[str | None]] | None,
    settings: Settings,
    data_dir: Path,
    base_env: Mapping[str, str],
    terminals: "TerminalSettings",
    warn: Callable[[str], None],
    met_limit: Callable[[str, str], None],
    *,
    pulled: Callable[[str, str, float], None],
) -> Fleet:
    from sandbox.providers.bridge_config import BridgeSettings
    from sandbox.providers.container.fleet import ContainerFleet
    from sandbox.providers.container.logins import BadLogins, LoginFile
    from sandbox.providers.container.pulls import PullEnd

    logins = None
    if settings.docker_auth_file is not None:
        logins = LoginFile(settings.docker_auth_file, REDACTOR.add)
        try:
            logins.read()
        except BadLogins as error:
            raise SettingsError([f"HOLDFAST_DOCKER_AUTH_FILE: {error}"]) from error

    def ended(end: PullEnd) -> None:
        told = {"image": end.image, "result": end.result, "seconds": round(end.seconds, 1), "bytes": end.bytes}
        if end.words:
            log.warning("image.not_pulled", cause=end.words, **told)
        else:
            log.info("image.pulled", **told)
        pulled(ContainerFleet.name, end.result, end.seconds)

    return ContainerFleet(
        data_dir,
        engine=settings.docker,
        image=settings.docker_image,
        propose=installation,
        runtime=settings.docker_runtime or None,
        agents=settings.agents_dir,
        base_env=base_env,
        bridges=BridgeSettings(settings.exec_timeout, settings.orphan_after, terminals),
        start_timeout=settings.start_timeout,
        allow_private_repos=settings.allow_private_repos,
        resources=_resource_limits(settings),
        may_pull=settings.docker_pull != "never",
        pull_timeout=settings.docker_pull_timeout,
        logins=logins,
        on_pull=ended,
        warn=warn,
        met_limit=lambda limit: met_limit(ContainerFleet.name, limit),
    )


def make_local_fleet(
    settings: Settings,
    data_dir: Path,
    base_env: Mapping[str, str],
    terminals: "TerminalSettings",
    warn: Callable[[str], None],
    met_limit: Callable[[str, str], None],
) -> Fleet:
    from sandbox.providers.local.fleet import LocalFleet

    return LocalFleet(
        data_dir,
        level=settings.local_level,
        loopback_only=settings.loopback_only,
        base_env=base_env,
        start_timeout=settings.start_timeout,
        exec_timeout=settings.exec_timeout,
        orphan_seconds=settings.orphan_after,
        allow_private_repos=settings.allow_private_repos,
        terminals=terminals,
        agents=settings.agents_dir,
        resources=_resource_limits(settings),
        warn=warn,
        met_limit=lambda limit: met_limit(LocalFleet.name, limit),
    )


def make_keys(settings: Settings, secrets: Secrets) -> KeySource:
    if settings.jwt_jwks_url is not None:
        from gateway.auth.jwks import KeySet

        return KeySet(settings.jwt_jwks_url)
    assert secrets.jwt_secret is not None
    return SharedSecret(secrets.jwt_secret)


def make_recordings(settings: Settings) -> RecordingFiles | None:
    """The recordings of sessions, if they are wanted. Raises SettingsError."""
    if settings.record_sessions is None:
        return None
    try:
        prepare_directory(settings.record_sessions)
    except OSError as error:
        raise SettingsError([f"HOLDFAST_RECORD_SESSIONS: {error}"]) from error
    return RecordingFiles(settings.record_sessions)


class House:
    """All parts of one gateway process, wired. Serve `app` behind `door`; call `drain` once before the end."""

    def __init__(self, settings: Settings, secrets: Secrets, fleet: Fleet | None = None, page: Path = BUILT) -> None:
        self._settings = settings
        self._page_directory = page
        self.address = f"http://{settings.host}:{settings.port}"  # shown by the page until the launcher sets it
        self.problem: str | None = None
        self.no_room = False  # the problem is a full disk: it may be tried again
        self.mend_lock: Callable[[], bool] = lambda: False  # set by the launcher, which has the lock
        self._files = FileIdentity(())
        self.metrics = Metrics()
        self.door = FrontDoor(settings, refused=self.metrics.refused)
        self.store = make_store(settings, secrets, self.door.fatal)
        self.hearing = StoreEvents()
        self.store.heard = self.hearing
        self.providers = make_providers(settings)
        self.vault_keeper = VaultKeeper(settings, secrets, self.store.users, CLIENTS, told=self.metrics.refreshed)
        made = (
            [fleet]
            if fleet
            else make_fleets(
                settings,
                met_limit=self.metrics.limit_ended,
                pulled=self.metrics.pulled,
                installation=self._installation,
            )
        )
        self.fleets = Fleets(*made, gone=settings.gone_providers)
        self.agents = Agents(settings.agent, AgentShelf(settings.agents_dir))
        self.objects = make_objects(settings)
        self.vault = SnapshotService(self.objects, SnapshotLimits(settings.snapshot_keep, settings.snapshot_grace))
        self.queue = PersistenceQueue(
            self.store,
            QueueLimits(flush_seconds=2.0),
            random.Random(),
            on_death=self.door.fatal,
            on_commit=self.metrics.committed,
        )
        self._recordings = make_recordings(settings)
        self.egress = EgressKeeper(
            settings.data_dir / "run",
            Setup(inner=settings.network_inner, orphan_seconds=settings.orphan_after + 60.0),
            on_denied=self._host_denied,
        )
        self.models = ModelGateway(
            self.egress,
            self.providers,
            VaultKeys(self.credentials),
            journal=settings.data_dir / JOURNAL,
            prices_file=settings.prices_file,
            user_cost=user_cost(settings),
            on_used=self.metrics.models_used,
        )
        given = read_sandbox_env(settings.sandbox_env_file) if settings.sandbox_env_file is not None else {}
        self.way_out = EgressAccess(self.egress, self.models, given)
        self.sessions = SessionParts(
            self.store,
            self.queue,
            self.fleets,
            Keeping(self.vault, _workspace_limits(settings)),
            _session_limits(settings),
            self.metrics,
            agents=self.agents,
            on_death=self.door.fatal,
            store_fails=self._store_fails,
            turns=StartTurns(_start_limits(settings)),
            inbound=self.door.rooms,
            user_limits=UserLimits(sessions=settings.max_sessions_per_user, stored=settings.max_stored_per_user),
            recordings=self._recordings,
            removes_orphans=settings.orphans == "remove",
            has_credential=self.credentials.has,
            way_out=self.way_out,
        )
        self.hearing.on_settled = self.sessions.registry.settled
        self.workspace_bytes = WorkspaceBytes(self.store, lambda: self.metrics.stored_changes)
        self.chores = self._chores(settings)
        self._letters = 0
        self._tickets = Tickets()
        self.signin = SignIn(secrets.jwt_secret, issuer=settings.jwt_issuer, audience=settings.jwt_audience)
        self._page = PageRoutes(FallbackPage(version(), lambda: self.address))
        self._verifier = TokenVerifier(
            make_keys(settings, secrets), issuer=settings.jwt_issuer, audience=settings.jwt_audience
        )
        self._watch()
        routes = self._routes(settings, secrets)
        gatekeeper = Middleware(
            PolicyMiddleware,
            routes=routes,
            identity=Identity(self._verifier, secrets, self._tickets),
            origins=Origins(settings.allowed_origins),
            counters=self.door.counters,
            rooms=self.door.rooms,
            let_in=self.sessions.catalogue.let_in,
            query_tokens=settings.query_tokens,
            refused=self.metrics.refused,
            requests=Budgets(settings.max_requests_per_user, 2 * settings.max_requests_per_user),
        )
        self.app = Starlette(
            routes=routes, middleware=[gatekeeper], exception_handlers=EXCEPTION_HANDLERS, lifespan=self._lifespan
        )

    def _routes(self, settings: Settings, secrets: Secrets) -> list[BaseRoute]:
        sessions = self.sessions
        registry, catalogue, drain = sessions.registry, sessions.catalogue, sessions.drain
        on_attach = sessions.creation if settings.create_on_attach else None
        doorway = SocketAttacher(registry, drain, self._verifier, on_attach)
        routes = served(
            self._page,
            SigninRoutes(
                self.signin,
                self._verifier,
                lambda: self.address,
                _about(settings),
                self._limits_of,
                models=self._models_of,
            ),
            HealthRoutes(version(), self.unready, self.degraded, self.metrics.render),
            OpenApiRoutes(version(), lambda: routes),
            ProviderRoutes(sessions.providers, {"docker": _image_rule(settings)}, settings.max_running),
            AgentRoutes(self.agents),
            ConfigRoutes(sessions.configs, self.credentials, lambda: self.providers),
            CredentialRoutes(self.vault_keeper, lambda: self.providers, changed=self._keys_changed),
            OrphanRoutes(sessions.orphans),
            SandboxRoutes(
                registry, catalogue, sessions.creation, troubles=self.credentials.troubles, spent=self.models.spent_by
            ),
            SnapshotRoutes(registry, catalogue, sessions.branching, drain, self.vault),
            FileRoutes(catalogue, self.vault),
            MessageRoutes(registry, catalogue, self.store, self.hearing),
            SessionRoutes(catalogue, self.store),
            ExportRoutes(catalogue, self.store, self.hearing),
            DeadLetterRoutes(self.store),
            LogRoutes(registry),
            TicketRoutes(catalogue, self._tickets, any_id=settings.create_on_attach),
            TerminalRoutes(registry, catalogue),
            PendingRoutes(registry, catalogue),
            ShareRoutes(
                registry, catalogue, secrets.jwt_secret, issuer=settings.jwt_issuer, audience=settings.jwt_audience
            ),
            FaultRoutes(registry, drain, self.queue, enabled=settings.demo),
            ChatSocket(doorway),
            EventsSocket(sessions.feed, drain, self._verifier),
            RawSocket(doorway),
            TerminalSocket(doorway),
        )
        return routes

    async def _limits_of(self, user_id: str) -> dict[str, Any]:
        rates = Rates(self._settings.max_requests_per_user, self._settings.max_agent_records)
        return await shown_limits(user_id, self.sessions.quota, self.sessions.turns, rates)

    def _keys_changed(self, user_id: str) -> None:
        self.models.keys_changed(user_id, of_everybody=user_id == EVERYBODY)

    def _models_of(self, user_id: str) -> dict[str, Any]:
        today = self.models.spent_today(user_id, time.strftime("%Y-%m-%d", time.gmtime()))
        return {"today": shown_spent(today), "budgetUsd": self._settings.budget_per_user}

    @property
    def credentials(self) -> Vault:
        return self.vault_keeper.vault

    @property
    def has_page(self) -> bool:
        return self._page.page is not None

    def unready(self) -> list[str]:
        """The reasons not to send work here; empty when all is well."""
        reasons = []
        if self.door.draining or self.sessions.drain.draining:
            reasons.append("draining")
        if self.queue.failing is not None:
            reasons.append(self.queue.failing)
        elif isinstance(self.store, OnDisk) and self.store.full:
            reasons.append(FULL)
        if not self.queue.alive or isinstance(self.door.failure, StoreBroken):
            reasons.append("store_broken")
        return reasons

    def degraded(self) -> list[str]:
        """The faults during which messages are still taken."""
        return ["store_behind"] if self._store_fails() else []

    def _store_fails(self) -> bool:
        return isinstance(self.store, Follows) and self.store.failing is not None

    def _chores(self, settings: Settings) -> list[Chore]:
        chores = [
            Chore("files", self._check_files, FILES_EVERY, FILES_EVERY),
            Chore("room", self._look_for_room, ROOM_EVERY, ROOM_EVERY),
            Chore("dead_letters", self._count_letters, LETTERS_FIRST, LETTERS_EVERY),
            Chore("workspace_bytes", self.workspace_bytes.count, COUNT_FIRST, COUNT_EVERY),
            Chore("providers", self.sessions.providers.keep_watch, 0.0, PROVIDERS_EVERY),
            Chore("snapshots", self._collect, COLLECT_FIRST, COLLECT_EVERY),
            Chore("vault", self.vault_keeper.look_after, 0.0, VAULT_EVERY),
        ]
        if policy := RetentionPolicy(settings.retention_age, settings.retention_count):
            retention = Retention(self.store, policy, told=self.metrics.trimmed_records.inc)
            chores.append(Chore("retention", retention.run, RETENTION_FIRST, RETENTION_EVERY))
        return chores

    async def _check_files(self) -> None:
        """Writes to files that were moved or removed are lost: end before more of them are acknowledged."""
        if (moved := self._files.moved()) is not None:
            self.problem = (
                f"{moved} {REPLACED}. If there was room, all that was stored is in a file named .rescued-<time> beside "
                "it: put that, or a backup, in its place before the next start"
            )
            return self.door.fatal(StoreBroken(self.problem))
        try:
            if self.mend_lock():
                log.warning("house.lock_removed", text="the data directory's lock was removed; it is made again")
        except DataDirBusy as error:
            self.problem = str(error)
            self.door.fatal(StoreBroken(self.problem))
        except OSError as error:  # no room: the next look tries again
            log.debug("house.lock_not_mended", cause=str(error))

    async def _look_for_room(self) -> None:
        """Test the disk here: a full gateway may get no messages that would find the room."""
        if isinstance(self.store, OnDisk) and self.store.full:
            await self.store.try_room()

    async def _collect(self) -> None:
        try:
            found = await self.vault.collect()
        except (ObjectsUnavailable, ObjectsRefused) as error:
            log.warning("snapshots.not_collected", cause=str(error))
        else:
            log.info("snapshots.collected", marked=found.marked, removed=found.removed, bytes=found.removed_bytes)

    async def _count_letters(self) -> None:
        before, self._letters = self._letters, await letters_kept(self.store)
        if self._letters > before:
            log.warning("dead_letters.kept", letters=self._letters, look="holdfast dead-letters list")

    async def drain(self) -> None:
        """End the readers' streams, then let every session finish its open work."""
        self.hearing.leave()
        await self.sessions.drain.run()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as open_parts:
            await self._read_page()
            try:
                await self._open_store(open_parts)
                await open_parts.enter_async_context(self.credentials)
                await open_parts.enter_async_context(self.objects)
                await self._check_objects()
                await open_parts.enter_async_context(self.queue)
                if self._recordings is not None:
                    open_parts.callback(self._recordings.close)
                await open_parts.enter_async_context(self.egress)
                open_parts.push_async_callback(self.models.close)
                await open_parts.enter_async_context(self.sessions)
            except (CannotOpen, SandboxFailed, ObjectsRefused, ObjectsUnavailable) as error:
                self.problem, self.no_room = str(error), isinstance(error, NoRoom)
                logging.getLogger("uvicorn.error").disabled = True  # the operator gets words, not a traceback
                raise
            await open_parts.enter_async_context(MaintenanceScheduler(self.chores, on_death=self.door.fatal))
            await open_parts.enter_async_context(Watchdog())
            if os.geteuid() == 0:
                log.warning("house.root", text=RUNS_AS_ROOT)
            if (gap := self.agents.problem(self._settings.agent)) is not None:
                log.warning("house.agent", text=f"HOLDFAST_AGENT: {gap.told}")
            if self._settings.demo and not self._settings.loopback_only:
                log.warning("house.demo", text=DEMO_IS_ON)
            if gone := self._settings.gone_providers:
                log.warning("house.providers_gone", providers=gone, text=PROVIDERS_GONE)
            if self._settings.record_sessions is not None:
                log.warning("house.records", text=RECORDS, path=str(self._settings.record_sessions))
            if wide := widest(self._settings.trusted_proxies):
                log.warning("house.trusts_everybody", text=TRUSTS_EVERYBODY.format(", ".join(wide)))
            log.info(
                "house.open",
                version=version(),
                store=str(self._settings.store),
                objects=str(self._settings.objects),
                provider=self.fleets.name,
                isolation=self.fleets.level,
            )
            yield

    async def _read_page(self) -> None:
        """A page that cannot be served must not prevent a start: sessions do not depend on it."""
        try:
            self._page.page = await asyncio.to_thread(read_page, self._page_directory)
        except BadPage as error:
            log.warning("page.unreadable", cause=str(error))

    async def _check_objects(self) -> None:
        """A store that breaks its promises is refused; one that does not answer yet must not prevent a start."""
        try:
            await check_objects(self.objects, self._settings, lambda text: log.warning("objects.unchecked", text=text))
        except ObjectsUnavailable as error:
            log.warning("objects.unavailable", cause=str(error))

    async def _installation(self, proposed: str) -> str | None:
        """The store's id of this installation; None while it does not answer."""
        try:
            async with asyncio.timeout(INSTALLATION_SECONDS):
                return await self.store.installation(proposed)
        except (StoreUnavailable, TimeoutError):
            return None

    async def _open_store(self, open_parts: AsyncExitStack) -> None:
        spool, store = self._settings.spool_path, self._settings.store
        await asyncio.to_thread(spool_owner.check, spool, store)
        await open_parts.enter_async_context(self.store)
        if isinstance(self.store, OnDisk):
            with suppress(StoreUnavailable):
                await self.store.try_room()
        if store.kind != "sqlite":
            await asyncio.to_thread(spool_owner.note, spool, store)
        database = store.path if store.kind == "sqlite" else spool
        self._files = FileIdentity((self._settings.data_dir, *database_files(database)))

    def _host_denied(self, denied: Denied) -> None:
        """The session's viewers read it, and the operator."""
        if (actor := self.sessions.loaded.get(denied.session)) is not None:
            actor.post(actor.viewers.show_denied_host, denied.host, denied.port, denied.reason, denied.entry)
        allow = f'"allow": ["{denied.entry}"]' if denied.entry else ""
        log.info(
            "egress.denied",
            session_id=denied.session,
            host=denied.host,
            port=denied.port,
            times=denied.times,
            cause=denied.reason,
            allow=allow,
        )

    def _watch(self) -> None:
        """Declare the gauges, which are read at each scrape: every queue's depth, and the number of sessions and
        viewers."""
        providers = self.sessions.providers
        names = [fleet.name for fleet in self.fleets]
        for name in names:
            self.metrics.expect(name)
        self.metrics.watch_providers("provider_up", "Answered last", names, providers.up)
        self.metrics.watch_providers(
            "sandboxes_running", "Sandboxes that have a place", names, lambda name: float(providers.running()[name])
        )
        for name in self._gauges():
            self.metrics.watch(name, name.replace("_", " "), partial(self._gauge, name))

    def _gauge(self, name: str) -> float:
        return self._gauges()[name]

    def _gauges(self) -> dict[str, float]:
        queue = {f"queue_{name}": value for name, value in self.queue.stats().items()}
        stage = "sink" if self._settings.store.kind == "http" else "spool"
        follows = self.store.stats() if isinstance(self.store, Follows) else {}
        own = {
            "connections": float(self.door.counters.total),
            "throttles": float(self.door.throttled.times),
            "throttled_seconds": self.door.throttled.seconds,
            "tickets": float(len(self._tickets)),
            "links": float(len(self.signin.links)),
            "dead_letters": float(self._letters),
            "stored_workspace_bytes": self.workspace_bytes.read(),
        }
        first_stage = {f"{stage}_{name}": value for name, value in follows.items()}
        sessions = self.sessions.stats()
        del sessions["sandboxes_running"]  # shown by provider
        return {**queue, **first_stage, **sessions, **own}


def build_house(settings: Settings, secrets: Secrets, *, fleet: Fleet | None = None, page: Path = BUILT) -> House:
    """Wire a gateway, with a `fleet` and a directory of the built `page` of the caller's own if they are given. Raises
    SettingsError; every other error comes from the lifespan.
    """
    REDACTOR.add(secrets.jwt_secret, secrets.api_token, secrets.internal_token, secrets.relay_secret)
    REDACTOR.add(secrets.vault_key, *secrets.old_vault_keys)
    REDACTOR.add(*settings.store.passwords, *settings.objects.secrets)
    return House(settings, secrets, fleet, page)


def _about(settings: Settings) -> dict[str, Any]:
    network = {"default": shown(read_text(settings.network)), "max": shown(read_text(settings.network_max))}
    return {"version": version(), "demo": settings.demo, "network": network}


def _workspace_limits(settings: Settings) -> WorkspaceLimits:
    return WorkspaceLimits(
        sync=SyncLimits(
            debounce=settings.sync_debounce, max_wait=settings.sync_max_wait, attempts=settings.sync_attempts
        ),
        rules=ScanAsk(
            agent_skip=settings.sync_agent_skip,
            limits=TreeLimits(files=settings.sync_max_files, total_bytes=settings.sync_max_bytes),
        ),
        restore_seconds=settings.restore_timeout,
    )


def _start_limits(settings: Settings) -> StartLimits:
    return StartLimits(
        at_once=settings.starts_at_once,
        at_once_per_user=settings.starts_at_once_per_user,
        running=settings.max_running,
        running_per_user=settings.max_running_per_user,
    )


def _session_limits(settings: Settings) -> SessionLimits:
    window = WindowLimits(
        away_records=settings.pending_limit, away_bytes=settings.pending_bytes, away_seconds=settings.pending_ttl
    )
    network = NetworkRule(settings.network, settings.network_max)
    return SessionLimits(
        window=window,
        sleep_after=settings.sleep_after,
        quiet_after=settings.quiet_after,
        network=network,
        resources=ResourceRule(_resource_limits(settings)),
        images=_image_rule(settings),
        agent_records=settings.max_agent_records,
    )


def _resource_limits(settings: Settings) -> ResourceLimits:
    return ResourceLimits(settings.limit_memory, settings.limit_cpus, settings.limit_pids)


def _image_rule(settings: Settings) -> ImageRule:
    return ImageRule(settings.docker_image, settings.images)
