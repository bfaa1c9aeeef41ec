"""Every loaded session: found or started, supervised, put to sleep, let go.

A session's crash stops here: it is logged, its viewers are told to come back, and the next to ask for it gets it
loaded anew from what is stored. What the registry does for itself (the reaper, finding old sandboxes) has no such
edge: if it fails, the gateway ends in order (`on_death`).
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson
import structlog

from gateway.auth.shares import Shares
from gateway.auth.tokens import SHARE_ENDED, Principal
from gateway.feed.feed import SessionFeed
from gateway.limits.inbound_bytes import UsersInboundBytes
from gateway.limits.quota import Quota, UserLimits
from gateway.limits.start_turns import StartTurns
from gateway.protocol.chat_frames import START_BYTES
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.errors import ApiError
from gateway.session.actor import SessionActor
from gateway.session.model.description import SandboxPlace, describe
from gateway.session.model.idle_policy import IdleStep, next_step
from gateway.session.model.ports import SessionLimits, SessionMetrics
from gateway.session.model.state import SessionSpec, SessionState, SessionStatus, Wish, sandbox_spec, spec_members
from gateway.session.workspace.keeping import Keeping
from persistence import crash_points
from persistence.backoff import delay
from persistence.errors import StoreUnavailable
from persistence.paging import sessions_after
from persistence.ports import MessageStore
from persistence.queue.queue import PersistenceQueue
from persistence.record import NO_USER, Outcome, Record, Session, Status, Write
from sandbox.ports.fleet import Fleet
from sandbox.ports.sandbox import Sandbox, SandboxFailed, SandboxUnavailable
from sandbox.providers.several import Fleets
from sync.snapshots.service import short_id

log = structlog.get_logger()
T = TypeVar("T")

REATTACH_AT_ONCE = 8
PENDING_BYTES_PER_USER = 16 << 20
MAX_ID = 128
CREATES = 5
READ_AT_ONCE = 100  # sessions, from the store
DESCRIBED_A_TURN = 10  # of the loop
UNANSWERED_LOADED = 1000
UNANSWERED_BYTES = 1 << 20  # at a time
LARGEST_RETRY_SECONDS = 5.0
DRAIN_SYNC_SECONDS = 10.0


def _as_sent(record: Record) -> Record:
    """The record as the agent knows it. One that reached the agent before the store refused it has left a marker."""
    if record.type != Status.REJECTED:
        return record
    metadata = orjson.loads(record.payload)["metadata"]
    return replace(record, cid=metadata["cid"], type=metadata["type"])


class SessionRegistry:
    def __init__(
        self,
        store: MessageStore,
        queue: PersistenceQueue,
        fleets: Fleets,
        keeping: Keeping,
        limits: SessionLimits,
        metrics: SessionMetrics,
        *,
        agent: tuple[str, ...],
        on_death: Callable[[BaseException], None],
        store_fails: Callable[[], bool] = lambda: False,
        turns: StartTurns | None = None,
        rooms: UsersInboundBytes | None = None,
        user_limits: UserLimits | None = None,
        rng: Random | None = None,
        utcnow: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._queue = queue
        self._fleets = fleets
        self._keeping = keeping
        self._limits = limits
        self._metrics = metrics
        self._agent = agent
        self._on_death = on_death
        self._store_fails = store_fails
        self._rooms = rooms or UsersInboundBytes()
        self._windows = UsersInboundBytes(PENDING_BYTES_PER_USER)
        self._rng = rng or Random()
        self._utcnow = utcnow
        self.turns = turns or StartTurns(rng=self._rng)
        self.quota = Quota(store.usage, user_limits)
        self._actors: dict[str, SessionActor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loading: dict[str, asyncio.Future[SessionActor | None]] = {}
        self._envs: dict[str, Mapping[str, str]] = {}
        self._group = asyncio.TaskGroup()
        self._keepers: list[asyncio.Task[None]] = []
        self._beside: dict[asyncio.Task[None], tuple[SessionActor, Coroutine[Any, Any, None]]] = {}
        self.draining = False
        self._closed = False
        self._purging: set[str] = set()
        self._reattaching_since: float | None = None  # while what ran before this gateway is found again
        self.bulletin = SessionFeed(self)

    async def __aenter__(self) -> Self:
        self._reattaching_since = asyncio.get_running_loop().time()
        await self._fleets.open()
        await self._group.__aenter__()
        self._keep(self._reap, "reaper")
        self._keep(self._find_old_sandboxes, "reattach")
        self._keep(self.bulletin.look_up, "bulletin")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self.bulletin.close()
        for loading in self._loading.values():
            loading.cancel()
        for task in [*self._keepers, *self._tasks.values(), *self._beside]:
            task.cancel()
        await self._group.__aexit__(None, None, None)
        await self._fleets.close()

    def provider_of(self, session_id: str) -> str:
        """Where the session's sandbox runs, if the session is loaded; otherwise where those of new ones do."""
        actor = self._actors.get(session_id)
        return self._fleets.name if actor is None else actor.sandbox.provider

    def sandbox(self, session: Session) -> Sandbox:
        """The handle of a session's sandbox. Loads nobody."""
        return self._fleets.sandbox(session.id, SessionSpec.from_json(session.spec).provider)

    # -- finding and making -------------------------------------------------------------------------------------------

    async def find(self, session_id: str, *, user_id: str | None) -> SessionActor | None:
        """The session, loaded if need be; None if there is none, or if it is not `user_id`'s (None: anybody's). A
        session without a user is nobody's. Raises StoreUnavailable.

        The owner is checked before the session is loaded: loading takes it from the gateway that has it now."""
        if user_id is not None and (user_id == NO_USER or await self.owner(session_id) != user_id):
            return None
        actor = await self._find(session_id)
        return actor if actor is not None and user_id in (None, actor.user_id) else None

    async def owner(self, session_id: str) -> str | None:
        """Whose session it is (NO_USER: the services'); None if there is none. Loads nothing; for a loaded session the
        store is not asked. Raises StoreUnavailable."""
        if (actor := self._actors.get(session_id)) is not None:
            return actor.user_id
        kept = await self.look(session_id)
        return None if kept is None else kept.user_id

    async def _find(self, session_id: str) -> SessionActor | None:
        actor = self._actors.get(session_id)
        if actor is not None or session_id in self._purging:
            return actor
        if self._closed:  # a session loaded now would never be told to end
            raise StoreUnavailable("the gateway has ended")
        if session_id not in self._loading:
            self._loading[session_id] = loading = asyncio.ensure_future(self._load(session_id))
            loading.add_done_callback(lambda _: self._loading.pop(session_id, None))
        return await asyncio.shield(self._loading[session_id])

    async def look(self, session_id: str) -> Session | None:
        """The session as readers see it, neither loaded nor taken from its writer; None if there is none. One that is
        loaded can be looked at while the store is away, any other raises StoreUnavailable.
        """
        try:
            kept = await self._store.find(session_id)
        except StoreUnavailable:
            if session_id not in self._actors:
                raise
            kept = self._actors[session_id].seen(None)
        if kept is None or session_id in self._purging:
            return None
        actor = self._actors.get(session_id)
        return kept if actor is None else actor.seen(kept)

    async def spec(self, session_id: str) -> SessionSpec | None:
        """What the session is, also what its writer knows and the store does not yet; None if there is none. Loads
        nobody. Raises StoreUnavailable."""
        if (actor := self._actors.get(session_id)) is not None:
            return actor.spec
        session = await self.look(session_id)
        return None if session is None else SessionSpec.from_json(session.spec)

    async def let_in(self, who: Principal) -> None:
        """Whether the share that somebody came with still opens its session. Raises ApiError, StoreUnavailable."""
        spec = await self.spec(who.session_id)
        if spec is None or who.share is None or not spec.shares.opens(who.share):
            raise ApiError(401, "share_ended", SHARE_ENDED)

    def settled(self, session_id: str, seq: int, outcome: Outcome) -> None:
        """What became in the store of a record that was durable here first (`StoreListener.settled`)."""
        if (actor := self._actors.get(session_id)) is not None:
            actor.settled(seq, outcome)

    async def create(self, session_id: str, user_id: str, wish: Wish) -> SessionActor:
        """The user's session of that id: a new one, the one there is, or an archived one brought back. NO_USER: the
        services'."""
        if self.draining:
            raise ApiError(503, "draining", "the gateway is shutting down: try again in a few seconds")
        if session_id in self._purging:
            raise ApiError(409, "purging", "this session is being removed: try again in a moment")
        network = self._limits.network
        spec = SessionSpec(**spec_members(wish, network.given), provider=self._fleets.name)
        state = SessionState(last_active=self._utcnow())
        if told := network.refusal(spec.network, granted=spec.network_granted, repo_url=spec.repo_url):
            raise ApiError(403, "network_not_allowed", told)
        try:
            self._fleets.check(sandbox_spec(session_id, 1, spec, self._agent, wish.env))
        except SandboxFailed as error:
            raise ApiError(400, "bad_sandbox", str(error)) from error
        session = Session(session_id, user_id, self._utcnow(), spec.to_json(), state.to_json())
        async with self._room_for(session_id, user_id, starts=True):
            kept = await self._store.create(session)
            if kept.user_id != user_id:
                raise ApiError(409, "taken", "this session id is taken: choose another")
            self._count_if_new(session, kept)
            actor = await self._find_created(session_id)
        archived = actor.status is SessionStatus.ARCHIVED
        changed = await actor.take_up(wish)
        if archived:
            self._created(session_id, user_id)
        if changed:
            await actor.durable()
        return actor

    async def branch(self, origin: Session, number: int | None, word: str) -> SessionActor:
        """A new session of the same user that begins with a generation of `origin`, which stays as it is. Raises what
        the vault raises."""
        if self.draining:
            raise ApiError(503, "draining", "the gateway is shutting down: try again in a few seconds")
        with self._counted():
            async with self.quota.session(origin.user_id, stores=True):
                return await self._branch(origin, number, word)

    async def _branch(self, origin: Session, number: int | None, word: str) -> SessionActor:
        # The id says where it came from; a long one is cut, so that what is added fits.
        session_id = f"{origin.id[: MAX_ID - len(word) - 10]}-{word}-{short_id()}"
        spec = SessionSpec.from_json(origin.spec)
        if spec.start is not None and len(orjson.dumps(spec.start)) > START_BYTES:
            told = f"its start has more than {START_BYTES} bytes, and a branch would copy it: send a shorter one first"
            raise ApiError(409, "start_too_large", told)
        generation = await self._keeping.vault.branch(origin.user_id, origin.id, number, session_id)
        metadata = {**spec.metadata, "origin": generation.note}
        begun = replace(spec, started=False, pending=[], metadata=metadata, shares=Shares())
        state = SessionState(
            last_active=self._utcnow(),
            generation=generation.number,
            tree=generation.manifest,
            files=generation.files,
            snapshot_bytes=generation.bytes,
            synced_at=generation.at,
            has_workspace=True,
            clean=True,
        )
        session = Session(session_id, origin.user_id, self._utcnow(), begun.to_json(), state.to_json())
        kept = await self._create(session)
        if (kept.user_id, kept.created_at) != (session.user_id, session.created_at):
            raise ApiError(409, "taken", "the new session's id is taken: try again")
        self._count_if_new(session, kept, origin=origin.id)
        self._metrics.stored(state.snapshot_bytes)
        actor = await self._find_created(session_id)
        if (env := self._envs.get(origin.id)) is not None:
            actor.give_env(env)
            await actor.durable()
        actor.stirred()
        return actor

    async def _create(self, session: Session) -> Session:
        """An answer that was lost is no reason to leave a session without its snapshots: ask again."""
        for attempt in range(CREATES):
            try:
                return await self._store.create(session)
            except StoreUnavailable:
                if attempt == CREATES - 1:
                    raise
                await asyncio.sleep(delay(attempt, base=0.1, cap=2.0, rng=self._rng))
        raise AssertionError("the last attempt returned or raised")

    async def attach_or_create(self, session_id: str, user_id: str) -> SessionActor | None:
        """For HOLDFAST_CREATE_ON_ATTACH: an unknown id becomes the user's own, asleep until somebody speaks. None if it
        is another's."""
        spec = SessionSpec(network=self._limits.network.given, provider=self._fleets.name)
        state = SessionState(last_active=self._utcnow())
        session = Session(session_id, user_id, self._utcnow(), spec.to_json(), state.to_json())
        async with self._room_for(session_id, user_id):
            kept = await self._store.create(session)
            if kept.user_id != user_id:
                return None
            self._count_if_new(session, kept, on="attach")
            actor = await self._find_created(session_id)
        actor.stirred()
        return actor

    def _count_if_new(self, asked: Session, kept: Session, **fields: str) -> None:
        """Count and log a creation, unless the store had a session of that id before."""
        if kept.created_at == asked.created_at:
            self._created(kept.id, kept.user_id, **fields)

    def _created(self, session_id: str, user_id: str, **fields: str) -> None:
        self._metrics.created(self._fleets.name)
        log.info("session.created", session_id=session_id, user_id=user_id, provider=self._fleets.name, **fields)

    @asynccontextmanager
    async def _room_for(self, session_id: str, user_id: str, *, starts: bool = False) -> AsyncIterator[None]:
        """Among the user's, for a session that is new, and for its sandbox if it `starts` at once. Raises ApiError
        429."""
        if session_id in self._actors or await self._store.find(session_id) is not None:
            yield
            return
        with self._counted():
            if starts:
                self.turns.refuse_if_full(user_id)
                self.turns.expect(session_id, user_id)
        try:
            with self._counted():
                async with self.quota.session(user_id):
                    yield
        except BaseException:
            self.turns.forget(session_id)
            raise

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count what a limit refuses."""
        try:
            yield
        except ApiError as error:
            if error.status == 429:
                self._metrics.refused(error.code)
            raise

    async def _find_created(self, session_id: str) -> SessionActor:
        actor = await self._find(session_id)
        if actor is None:
            raise ApiError(409, "purging", "this session is being removed: try again in a moment")
        return actor

    async def describe_all(self, user_id: str | None) -> list[dict[str, Any]]:
        """Every session of the user, or of all. Raises StoreUnavailable."""
        return [described async for some in self.described(user_id) for described in some]

    async def described(self, user_id: str | None) -> AsyncIterator[list[dict[str, Any]]]:
        """The same by and by, a few in each turn of the loop: thousands are no reason for everybody else to wait."""
        page = await self._store.sessions(user_id, limit=READ_AT_ONCE)
        while page:
            for start in range(0, len(page), DESCRIBED_A_TURN):
                yield [self.describe(session) for session in page[start : start + DESCRIBED_A_TURN]]
                await asyncio.sleep(0)
            page = await sessions_after(self._store, page, limit=READ_AT_ONCE, user_id=user_id)

    def describe(self, kept: Session) -> dict[str, Any]:
        """A session that the store has listed, with what only a loaded one knows."""
        if (actor := self._actors.get(kept.id)) is not None:
            return actor.describe()
        spec, state = SessionSpec.from_json(kept.spec), SessionState.from_json(kept.state)
        sandbox = self._fleets.sandbox(kept.id, spec.provider)
        place = SandboxPlace(sandbox.provider, sandbox.level)
        return describe(kept.id, kept.user_id, kept.created_at, kept.last_seq, spec, state, place)

    def loaded(self, session_id: str) -> dict[str, Any] | None:
        """The session as it is, if it is loaded here."""
        actor = self._actors.get(session_id)
        return None if actor is None else actor.describe()

    async def kept(self, session_id: str) -> dict[str, Any] | None:
        """The session as it is, or as the store knows it; None if there is none. Loads nobody. Raises
        StoreUnavailable."""
        session = await self.look(session_id)
        return None if session is None else self.describe(session)

    async def _load(self, session_id: str) -> SessionActor | None:
        await self._barrier(session_id)
        loaded = await self._store.load(session_id)
        if loaded is None:
            return None
        crash_points.reached("session.loaded")
        actor = SessionActor(
            loaded,
            await self._unanswered(loaded.session),
            store=self._store,
            queue=self._queue,
            sandbox=self.sandbox(loaded.session),
            start=self._fleets.start,
            agent=self._agent,
            envs=self._envs,
            keeping=self._keeping,
            limits=self._limits,
            turns=self.turns,
            quota=self.quota,
            metrics=self._metrics,
            spawn=self._spawn,
            purge=self._purge,
            bulletin=self.bulletin,
            room=self._rooms.of(loaded.session.user_id),
            pending=self._windows.of(loaded.session.user_id),
            rng=self._rng,
            utcnow=self._utcnow,
        )
        self._actors[session_id] = actor
        self._tasks[session_id] = self._group.create_task(self._supervise(actor), name=f"session {session_id}")
        actor.begin(since=self._reattaching_since)
        return actor

    async def _barrier(self, session_id: str) -> None:
        """Wait for what an earlier actor of this session still has in the queue: its numbers are not loaded half."""
        if self._queue.failing is not None or not self._queue.alive:
            raise StoreUnavailable("the queue is stuck: nothing can be loaded behind it")
        self._queue.release(session_id)
        if self._queue.depth:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.put(
                Write(session_id), lambda _: None if settled.done() else settled.set_result(None), refusable=False
            )
            await settled

    async def _unanswered(self, session: Session) -> list[Record]:
        """Messages the agent has and has not answered."""
        found, after = list[Record](), SessionState.from_json(session.state).answered
        while after < session.delivered and len(found) < UNANSWERED_LOADED:
            wanted = UNANSWERED_LOADED - len(found)
            page = await self._store.messages(session.id, after=after, limit=wanted, max_bytes=UNANSWERED_BYTES)
            # Who they are is enough: their content is the agent's already.
            found += [replace(_as_sent(record), payload=b"") for record in page if record.seq <= session.delivered]
            after = page[-1].seq if page else session.delivered
        return [record for record in found if record.status == Status.DELIVERED and record.type == "message"]

    # -- supervising --------------------------------------------------------------------------------------------------

    async def _supervise(self, actor: SessionActor) -> None:
        try:
            await actor.run()
        except Exception:
            log.exception("session.crashed", session_id=actor.id)
        finally:
            self._forget(actor)
            self.turns.forget(actor.id)  # who was to ask may be cancelled before the first step
            for task, (owner, _) in self._beside.items():
                if owner is actor:  # it would go on with a sandbox that is another's by now
                    task.cancel()

    def _forget(self, actor: SessionActor) -> None:
        if self._actors.get(actor.id) is actor:
            del self._actors[actor.id]
            self._tasks.pop(actor.id).cancel()
            self.turns.give_up(actor.id)
            self.turns.note(actor.id, actor.user_id, placed=False)
            self.bulletin.stir(actor.user_id, actor.id)

    def _spawn(self, actor: SessionActor, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._closed or actor.ended:
            work.close()
            return
        task = self._group.create_task(self._run_beside(actor, work, name), name=name)
        self._beside[task] = actor, work
        task.add_done_callback(self._over_beside)

    async def _run_beside(self, actor: SessionActor, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except StoreUnavailable as error:
            log.warning("session.store_unavailable", session_id=actor.id, cause=str(error))
        except Exception:
            log.exception("session.crashed", session_id=actor.id, work=name)
            self._forget(actor)

    def _over_beside(self, task: asyncio.Task[None]) -> None:
        _, work = self._beside.pop(task)
        work.close()  # cancelled before its first step, it would never have begun

    async def _purge(self, actor: SessionActor) -> None:
        self._purging.add(actor.id)  # until it is gone nobody finds it, or it would be loaded once more
        try:
            self._forget(actor)
            await self._barrier(actor.id)
            await self._store.purge(actor.id)
            self.bulletin.gone(actor.user_id, actor.id)
        finally:
            self._purging.discard(actor.id)

    def _keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        async def keep() -> None:
            try:
                await work()
            except Exception as error:
                log.exception("registry.keeper_died", keeper=name)
                self._on_death(error)

        self._keepers.append(self._group.create_task(keep(), name=name))

    async def _reap(self) -> None:
        """Put to sleep what is idle; let go of what sleeps and nobody watches. The setting alone says how often it
        looks, not the idle times that users choose: a short one would have it look at everybody all the time."""
        pause = min(5.0, self._limits.sleep_after / 4)
        while True:
            await asyncio.sleep(pause)
            for actor in list(self._actors.values()):
                match next_step(actor.idleness()):
                    case IdleStep.SLEEP:
                        actor.spawn(actor.sleep_if_idle(), f"sleep {actor.id}")
                    case IdleStep.RESCUE:
                        actor.rescue()
                    case IdleStep.UNLOAD if self._can_be_loaded_again(actor):
                        self._forget(actor)

    def _can_be_loaded_again(self, actor: SessionActor) -> bool:
        """Otherwise it waits until the store is back and has caught up."""
        return not self._store_fails() and not self._store.behind(actor.id)

    async def _find_old_sandboxes(self) -> None:
        """Load what has business of its own: a sandbox that runs, an answer under way, a message that waits, files
        that could not be kept. Each fleet by itself: one that does not answer is waited for, the others are not."""
        async with asyncio.TaskGroup() as looking:
            for fleet in self._fleets:
                looking.create_task(self._find_sandboxes_of(fleet), name=f"reattach {fleet.name}")
        self._reattaching_since = None

    async def _find_sandboxes_of(self, fleet: Fleet) -> None:
        running = set(await self._patiently(fleet.running))
        waiting = set(await self._patiently(self._store.waiting))
        count, orphans, busy = await self._patiently(lambda: self._look_through(fleet.name, running, waiting))
        for session_id in orphans:
            log.warning("sandbox.orphan", session_id=session_id)
            await self._patiently(fleet.sandbox(session_id).stop)
        running -= orphans
        gate = asyncio.Semaphore(REATTACH_AT_ONCE)

        async def load(session_id: str) -> None:
            async with gate:
                try:
                    actor = await self._patiently(lambda: self._find(session_id))
                except Exception:  # one that cannot be loaded is no reason to keep all others from being served
                    log.exception("session.load_failed", session_id=session_id)
                    return
                if actor is None:
                    return
                if session_id in running:  # what one that ended left is kept when nobody has asked for it for a while
                    await self._patiently(lambda: actor.found_running(since=self._reattaching_since))

        async with asyncio.TaskGroup() as loading:
            for session_id in busy:
                loading.create_task(load(session_id))
        log.info("registry.ready", provider=fleet.name, sessions=count, running=len(running), loaded=len(busy))

    async def _look_through(
        self, provider: str, running: set[str], waiting: set[str]
    ) -> tuple[int, set[str], list[str]]:
        """How many sessions there are, which of those `running` should not, and which of the provider's have business
        of their own. Page by page: of the others nothing is remembered. Raises StoreUnavailable."""
        count, orphans, busy = 0, set(running), list[str]()
        page = await self._store.sessions(limit=READ_AT_ONCE)
        while page:
            count += len(page)
            for session in page:
                state = SessionState.from_json(session.state)
                if state.status is not SessionStatus.ARCHIVED:
                    orphans.discard(session.id)
                runs = session.id in running and session.id not in orphans
                is_busy = runs or session.id in waiting or not state.ended or state.wants_rescue
                if is_busy and SessionSpec.from_json(session.spec).provider == provider:
                    busy.append(session.id)
            page = await sessions_after(self._store, page, limit=READ_AT_ONCE)
        return count, orphans, busy

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A store or a provider that is away when the gateway opens is no reason to end: ask again."""
        for attempt in itertools.count():
            try:
                return await ask()
            except StoreUnavailable as error:
                if attempt == 0:
                    log.warning("registry.store_unavailable", cause=str(error))
            except SandboxUnavailable as error:
                if attempt == 0:
                    log.warning("registry.provider_unavailable", cause=str(error))
            await asyncio.sleep(delay(attempt, base=0.1, cap=5.0, rng=self._rng))
        raise AssertionError("it is asked until it is answered")

    # -- leaving ------------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Tell everybody to come back, finish what was read, close with 1012. Sandboxes stay. The caller has the
        deadline.
        """
        self.draining = True
        self._queue.release()
        self.bulletin.say_goodbye(self._retry_after())
        actors = list(self._actors.values())
        for actor in actors:
            actor.say_goodbye(self._retry_after())
        await self._settle(actors)
        for actor in actors:
            actor.save_delivered()
        await self._queue.flush(60.0)
        await self._settle(actors)
        for actor in actors:
            actor.close_viewers(CloseCode.COMING_BACK)
        self.bulletin.close()
        await self._keep_workspaces(actors)
        await self._queue.flush(60.0)

    def _retry_after(self) -> float:
        return round(self._rng.uniform(0.5, LARGEST_RETRY_SECONDS), 2)

    async def _keep_workspaces(self, actors: list[SessionActor]) -> None:
        """Keep what is not kept yet, for a while: the sandboxes stay, so the next gateway can do it as well. Also of
        those that are not dirty: word of what was written a moment ago may not have come."""
        ready = [actor for actor in actors if actor.workspace.ready]
        if not ready:
            return
        flushing = [asyncio.create_task(actor.workspace.flush(), name=f"drain {actor.id}") for actor in ready]
        await asyncio.wait(flushing, timeout=DRAIN_SYNC_SECONDS)
        left = [actor.id for actor, task in zip(ready, flushing, strict=True) if not task.done() or task.exception()]
        for task in flushing:
            task.cancel()
        if left:
            log.warning("registry.not_synced", sessions=left[:20], count=len(left))
        await self._settle(actors)

    async def _settle(self, actors: list[SessionActor]) -> None:
        # A queue that has died will never tell anybody anything; otherwise every turn of the loop empties inboxes.
        while self._queue.alive and any(not actor.quiet for actor in actors):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def stats(self) -> dict[str, float]:
        waiting = [actor.waiting() for actor in self._actors.values()]
        views = [view for actor in self._actors.values() if (view := actor.workspace.view) is not None]
        now = self._utcnow()
        return {
            **self.turns.stats(),
            "sessions_loaded": len(self._actors),
            "viewers": sum(len(actor.audience) for actor in self._actors.values()),
            "terminal_viewers": sum(len(actor.terminals) for actor in self._actors.values()),
            "event_viewers": len(self.bulletin),
            "pending_records": sum(records for records, _ in waiting),
            "pending_bytes": sum(size for _, size in waiting),
            "sync_dirty_sessions": sum(view.dirty for view in views),
            "sync_failed_sessions": sum(view.failing for view in views),
            "sync_oldest_dirty_seconds": max(
                (now - (view.last_success or now) for view in views if view.dirty), default=0.0
            ),
        }
