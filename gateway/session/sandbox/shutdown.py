"""How a session's sandbox comes to rest, and what becomes of its workspace then.

It stops the other way round than it starts (supervisor.py): first the programs, then what they left is kept, then the
sandbox. While something cannot be kept, the sandbox stays; unless it is more than may be kept, which only its owner can
change: then the sandbox is stopped, and its disk stays as it is. What a sandbox that has ended left on its disk can be
kept afterwards: it is started once more, with its agent held, and stopped again.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import structlog

from gateway.protocol.errors import ApiError
from gateway.session.conversation.replies import sandbox_unavailable, session_failed
from gateway.session.model.ports import Host
from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.supervisor import SandboxSupervisor
from gateway.session.workspace.errors import NotRestored
from gateway.session.workspace.workspace import Workspace
from persistence.backoff import delay
from sandbox.ports.sandbox import Sandbox, SandboxFailed, SandboxUnavailable
from sync.errors import SyncFailed, SyncRefused

log = structlog.get_logger()

HELD = (SessionStatus.PAUSED, SessionStatus.ARCHIVED)  # by request: nothing less undoes the later of them
NOTHING_KEPT = {
    "generation": 0, "tree": "", "files": 0, "snapshot_bytes": 0, "synced_at": None, "sync_error": "", "clean": True,
    "degraded": "", "overfull": False, "fresh": False,
}  # fmt: skip
REPLACED = (
    "its sandbox ended and most of its files were gone: the newest generation is in their place, what was left is kept "
    "beside it"
)
KEEPS = 3  # sandboxes that may die while somebody waits for what they hold to be kept
RESCUE_BASE, RESCUE_CAP = 5.0, 300.0  # seconds between two attempts at what a sandbox left


class SandboxShutdown:
    __slots__ = ("_entrance", "_host", "_life", "_rescuing", "_sandbox", "_talk", "_workspace")

    def __init__(self, host: Host, life: SandboxSupervisor, workspace: Workspace, sandbox: Sandbox) -> None:
        self._host = host
        self._life = life
        self._talk = life.talk
        self._workspace = workspace
        self._sandbox = sandbox
        self._rescuing = False
        self._entrance = asyncio.Lock()  # one at a time asks for a turn

    async def stop(self, to: SessionStatus, reason: str = "", *, if_still: Callable[[], bool] | None = None) -> None:
        """Stop the agent, keep the workspace, stop the sandbox. What waits keeps waiting. Whoever had to wait for its
        turn finds out first whether the session is still to be stopped: what was paused or archived meanwhile stays so.
        Raises ApiError if the workspace cannot be kept: then the sandbox stays. One whose workspace is more than may be
        kept is stopped all the same: its files stay on its disk, and the session says so. A sync that is under way is
        waited for before anything is stopped, as the last one can only follow it. A hold on what the session stores is
        over: an agent has ended once what it said is stored.
        """
        life, talk = self._life, self._talk
        self._host.queue.release(talk.id)
        if if_still is None:
            life.give_up_turn()
        try:
            async with life.lock:
                await self._lull(to)
                if self._overtaken(to) or (if_still is not None and not if_still()):
                    return
                with life.at_rest():
                    await life.agent_ended()
                    self._refuse_ended()
                    kept = await self._keep_the_last(to)
                    self._refuse_ended()
                    life.drop_link()
                    try:
                        await self._sandbox.stop()
                    except asyncio.CancelledError:
                        self._workspace.hold.let_go_soon()
                        raise
                    except Exception:  # it goes on, and so may its programs
                        await self._workspace.hold.let_go()
                        raise
                    self._workspace.lost()
                    life.output.in_order(lambda: life.forget(reason or "the sandbox was stopped"))
                    life.rests = True
                    life.become(to, reason if to is SessionStatus.ERROR else kept.get("sync_error") or reason, **kept)
        except SandboxUnavailable as error:
            raise sandbox_unavailable(error) from error
        finally:
            if len(talk.window) and talk.state.status in (SessionStatus.SLEEPING, SessionStatus.RUNNING):
                life.want_agent()

    async def _lull(self, to: SessionStatus) -> None:
        if to is not SessionStatus.ARCHIVED:
            with _as_refusal():
                await self._workspace.lull()

    async def _keep_the_last(self, to: SessionStatus) -> dict[str, Any]:
        """The programs have ended: keep what they left. What the session's state is to say then: nothing new if the
        sandbox has ended by itself, so that what it left is kept afterwards."""
        if to is SessionStatus.ARCHIVED or not await self._runs():
            return {}
        with _as_refusal():
            try:
                await self._workspace.find()
                await self._workspace.settle()
            except (SyncFailed, SyncRefused) as error:
                if not await self._runs():
                    return {}
                if isinstance(error, SyncFailed) and error.permanent and self._workspace.overfull:
                    return {"clean": False, "overfull": True, "sync_error": error.reason}
                raise
        return {"clean": self._workspace.remembered, "overfull": False, "sync_error": "", **self._workspace.kept}

    async def _runs(self) -> bool:
        """Whether the sandbox does. A link says nothing: its loss may not have been heard yet."""
        return await self._sandbox.runs()

    def _refuse_ended(self) -> None:
        """The sandbox, its files and its generations may be another gateway's by now. Raises ApiError."""
        if self._host.ended:
            raise session_failed()

    def _overtaken(self, to: SessionStatus) -> bool:
        status = self._talk.state.status
        return status in HELD and (to not in HELD or HELD.index(to) < HELD.index(status))

    async def destroy(self) -> None:
        """Stop the sandbox and remove what it left. Nothing is removed before it is durable that the session is
        archived: a gateway that dies halfway leaves one that can be deleted again, and one that is not the session's
        writer any more learns it in time. Raises ApiError, and what the vault raises."""
        self._refuse_ended()
        self._workspace.lost()  # whoever keeps it just now need not go on
        await self.stop(SessionStatus.ARCHIVED)
        await self._host.durable()
        async with self._life.lock:
            if self._talk.state.status is not SessionStatus.ARCHIVED:  # it was created again, by somebody as quick
                return
            self._refuse_ended()
            try:
                await self._sandbox.destroy()
            except SandboxUnavailable as error:
                raise sandbox_unavailable(error) from error
            self._refuse_ended()
            await self._workspace.forget()
            self._talk.save(has_workspace=False, **NOTHING_KEPT)
        self._life.output.in_order(self._talk.discard_window)

    async def keep(self) -> None:
        """Keep what is on the disk now, also of a session whose sandbox has ended and left something that is not
        kept. When this returns, what was there when it was called is in the newest generation. Raises SyncFailed,
        SyncRefused, and NotRestored or SandboxFailed if it cannot be looked at."""
        try:
            await self._keep()
        except SandboxUnavailable as error:
            raise SyncFailed(str(error)) from error

    async def _keep(self) -> None:
        replaced = self._workspace.replaced
        for attempt in range(KEEPS):
            visits = await self._must_visit()
            async with self._turn() if visits else contextlib.nullcontext(False) as visits, self._life.lock:
                runs, incarnation = await self._runs(), self._talk.state.incarnation
                if runs:
                    await self._workspace.find()
                elif visits or not self._talk.state.unkept:
                    await self._keep_what_was_left()
                else:
                    continue  # it died a moment ago, or did not start
            try:
                if runs:
                    await self._workspace.flush()
                break
            except (SyncFailed, SyncRefused):
                same = self._talk.state.incarnation == incarnation and await self._runs()
                if same or attempt == KEEPS - 1:
                    raise  # else the sandbox has died: what it left is looked for once more, or is in the next one
        else:
            raise SyncFailed("its sandbox died each time it was looked at")
        if self._workspace.replaced != replaced:
            raise SyncFailed(REPLACED)

    async def refuse_if_full(self) -> None:
        """For who waits for `keep`: raises ApiError 429 if it has to start a sandbox, and there is no place for one."""
        with contextlib.suppress(SandboxUnavailable):  # `keep` says so
            if await self._must_visit():
                self._life.refuse_if_full()

    async def _must_visit(self) -> bool:
        return self._talk.state.unkept and not self._life.starts and not await self._runs()

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[bool]:
        """A visit starts a sandbox like any other start: it waits for its turn, and takes one of its user's places.
        The session is not shown as one that starts, so it waits under a name of its own. False if the session starts
        before that: it may have the last place."""
        name, user = self._life.visit, self._host.user_id
        turns = self._host.turns
        async with (
            self._entrance,
            turns.turn(name, user, runs=False, placed=lambda: False, told=lambda _: None) as over,
        ):
            if over is not None:
                turns.note(name, user, placed=True)
            yield over is not None

    async def _keep_what_was_left(self) -> None:
        """No sandbox runs, whatever the status says: one that has just died is `running` until that was noticed."""
        state = self._talk.state
        if state.status in (SessionStatus.UNRESTORED, SessionStatus.ARCHIVED):  # since this waited for its turn
            raise SyncRefused(f"the session is {state.status}: nothing of its workspace may be synced")
        if state.unkept:
            await self._visit()

    def keep_soon(self) -> None:
        """The same; nobody waits for it."""

        async def keep() -> None:
            await self._try_to_keep()

        self._host.spawn(keep(), f"keep {self._talk.id}")

    async def _try_to_keep(self) -> bool:
        try:
            await self.keep()
        except (SyncFailed, SyncRefused, NotRestored, SandboxFailed) as error:
            log.warning("sync.not_kept", session_id=self._talk.id, cause=str(error))
            return False
        return True

    async def _visit(self) -> None:
        """Start the sandbox with its agent held, keep what is there, stop it. The status stays what it was: what should
        run is about to be started again, and is not at rest."""
        talk, at_rest = self._talk, self._talk.state.left_behind
        talk.save(incarnation=talk.state.incarnation + 1)
        try:
            await self._life.start_held(await self._workspace.look(), {})
            await self._workspace.flush()
            self._workspace.lost()
            clean = at_rest and self._workspace.remembered
            talk.save(clean=clean, overfull=False, sync_error="", **self._workspace.kept)
        except SyncFailed:
            if at_rest and self._workspace.overfull:
                talk.save(overfull=True)
            raise
        finally:
            self._workspace.lost()
            if not self._host.ended:
                await self._sandbox.stop()

    async def put_back(self, number: int) -> None:
        """Raises what the vault raises; ApiError if the session is not paused any more."""
        async with self._life.lock:
            state = self._talk.state
            # What may not be read is not kept, and stays on the disk: the next start puts that aside.
            if state.status is not SessionStatus.PAUSED or not (state.clean or self._workspace.has_unread):
                raise ApiError(409, "not_paused", "the session is not paused any more: pause it and try again")
            self._refuse_ended()
            await self._workspace.put_back(number)

    def rescue(self) -> None:
        """No sandbox runs, and the last one may have left what is not kept: keep it, as soon as that can be done.
        Viewers hear of it as of any failure that is over."""

        async def keep() -> None:
            for attempt in itertools.count():
                if not self._talk.state.wants_rescue:
                    break
                self._host.asked("sync", attempt=attempt)
                if await self._try_to_keep():
                    break
                await asyncio.sleep(delay(attempt, base=RESCUE_BASE, cap=RESCUE_CAP, rng=self._host.rng))
            self._rescuing = False

        if not self._rescuing:
            self._rescuing = True
            self._host.spawn(keep(), f"rescue {self._talk.id}")


@contextlib.contextmanager
def _as_refusal() -> Iterator[None]:
    """What cannot be kept is not stopped. Raises ApiError."""
    try:
        yield
    except (SyncFailed, SyncRefused) as error:
        raise ApiError(503, "sync_failed", f"the sandbox stays, its workspace is not kept: {error}") from error
