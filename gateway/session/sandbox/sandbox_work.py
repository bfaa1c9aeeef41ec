"""The effects of a session's life that wait for its sandbox, its workspace or the store: one method for each.

They run beside the session's task and leave the session's life alone: their result is an event. An unexpected exception
is a bug: it is logged and fails the effect (`BROKE`).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from gateway.agents.agents import Agents
from gateway.egress.way import WayWanted
from gateway.protocol.errors import ApiError
from gateway.session.conversation.log import SessionLog
from gateway.session.model.ports import Host
from gateway.session.model.state import sandbox_spec
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.link_listener import LinkListener
from gateway.session.sandbox.link_owner import LinkOwner
from gateway.session.sandbox.sandbox_image import SandboxImage
from gateway.session.workspace.errors import NotRestored, NotWritten
from gateway.session.workspace.workspace import Workspace
from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.link import Link, LinkRefused
from sandbox.ports.progress import OnProgress
from sandbox.ports.sandbox import Sandbox, SandboxFailed, SandboxUnavailable
from sandbox.ports.tree import TreeFailed
from sync.errors import SyncFailed, SyncRefused
from sync.machine.reconcile import Newest

log = structlog.get_logger()

T = TypeVar("T")


class SandboxStarter(Protocol):
    """The part of a Fleet that one session uses."""

    async def start(self, spec: SandboxSpec, progress: OnProgress) -> None:
        """Start a sandbox. Raises SandboxFailed, SandboxUnavailable."""
        ...


SEE_LOG = "it failed; the gateway's log says why"
BROKEN = "it could not be started"
DIED = "its sandbox died during every attempt"


def is_silence(error: BaseException | None) -> bool:
    """True if the error's cause is a provider that does not answer."""
    while error is not None and not isinstance(error, SandboxUnavailable):
        error = error.__cause__
    return error is not None


class SandboxWork:
    __slots__ = (
        "_agents",
        "_cause",
        "_envs",
        "_fleet",
        "_host",
        "_image",
        "_link",
        "_log",
        "_newest",
        "_replaced",
        "_sandbox",
        "_workspace",
    )

    def __init__(
        self,
        host: Host,
        session_log: SessionLog,
        workspace: Workspace,
        sandbox: Sandbox,
        fleet: SandboxStarter,
        link: LinkOwner,
        image: SandboxImage,
        agents: Agents,
        envs: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._host = host
        self._log = session_log
        self._workspace = workspace
        self._sandbox = sandbox
        self._fleet = fleet
        self._link = link
        self._image = image
        self._agents = agents
        self._envs = envs  # of all sessions
        self._newest: Newest | None = None  # generation, as the last look found it
        self._replaced = 0  # how often a disk had been replaced before that look
        self._cause: tuple[int, Exception] | None = None  # the number of a failed effect, and its error

    async def perform(self, effect: do.Asked) -> on_.EffectReply:
        return await self._answered(effect, PERFORM[type(effect)](self, effect))

    async def _answered(self, effect: do.Asked, work: Awaitable[T]) -> T | on_.EffectReply:
        """Return the result of an effect; every failure is a result, too."""
        try:
            return await work
        except SandboxUnavailable as error:
            return on_.Unavailable(effect.number, str(error))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return self._broke(effect, RuntimeError("what it waited for was cancelled"))
        except Exception as error:
            return self._broke(effect, error)

    def _broke(self, effect: do.Asked, error: Exception) -> on_.EffectReply:
        log.error("session.work_failed", session_id=self._log.id, work=type(effect).__name__, exc_info=error)
        return self._failed(BROKE[type(effect)](effect.number), error)

    def _failed(self, reply: on_.EffectReply, error: Exception) -> on_.EffectReply:
        self._cause = reply.number, error
        return reply

    def cause_of(self, number: int) -> Exception | None:
        """The error with which that effect failed, for the waiting request."""
        if self._cause is None or self._cause[0] != number:
            return None
        (_, cause), self._cause = self._cause, None
        return cause

    # -- start --------------------------------------------------------------------------------------------------------

    async def look(self, effect: do.LookForNewest) -> on_.EffectReply:
        self._replaced = self._workspace.replaced
        try:
            self._newest = await self._workspace.look(keep=effect.keep)
        except NotRestored as error:
            return on_.Unrestorable(effect.number, str(error))
        return on_.Looked(effect.number)

    async def start_held(self, effect: do.StartHeld) -> on_.EffectReply:
        session = self._log
        if told := self._host.limits.images.refusal(session.spec.image, granted=session.spec.image_granted):
            return on_.StartFailed(effect.number, told)
        if effect.empty:
            self._newest = None
        env = {} if effect.visit else self._envs.get(session.id, {})
        kept = self._newest is not None or effect.keep
        asked, granted = session.spec.resources, session.spec.limits_granted
        spec = sandbox_spec(
            session.id,
            effect.incarnation,
            session.spec,
            self._agents.launch(session.spec.agent, session.spec.agent_name, session.spec.agent_server),
            env,
            has_snapshot=kept,
            empty=effect.empty,
            limits=self._host.limits.resources.given(asked, granted=granted),
            way=await self._host.way_out.inside(self._host.user_id, self._sandbox.level, env, session.spec.repo_url),
        )
        try:
            await self._fleet.start(spec, partial(self._image.hear, effect.number))
        except SandboxFailed as error:
            return on_.StartFailed(effect.number, str(error))
        self._host.metrics.started(self._sandbox.provider)
        return on_.SandboxStarted(effect.number)

    async def prepare(self, effect: do.Prepare) -> on_.EffectReply:
        try:
            newest, self._newest = self._newest, None
            seen = await self._workspace.prepare(newest, empty=effect.empty, keep=effect.keep, visit=effect.visit)
        except NotRestored as error:
            return _not_restored(effect.number, error)
        if not seen:
            self._newest = newest
            return on_.RestoredUnseen(effect.number)
        return on_.Prepared(effect.number)

    async def release(self, effect: do.Release) -> on_.EffectReply:
        try:
            await self._workspace.release(self._host.limits.durable_seconds if effect.bounded else math.inf)
        except NotRestored as error:
            return _not_restored(effect.number, error)
        except NotWritten:
            return on_.StoreSilent(effect.number)
        return on_.AgentReleased(effect.number)

    async def dial(self, effect: do.Connect) -> on_.EffectReply | tuple[LinkListener, Link]:
        """The link and its listener, which is not open yet; or the reason why there is none."""
        return await self._answered(effect, self._dial(effect.number))

    async def _dial(self, number: int) -> on_.EffectReply | tuple[LinkListener, Link]:
        try:
            dialled = await self._link.dial(number)
        except (LinkRefused, SandboxFailed) as error:
            return on_.DialRefused(number, str(error))
        spec = self._log.spec
        wanted = WayWanted(spec.network, spec.repo_url, spec.spend_limit)
        self._host.way_out.opened(self._log.id, self._host.user_id, wanted, self._sandbox)
        return dialled

    def has_env(self) -> bool:
        """True if the session's secrets are known here."""
        return self._envs.get(self._log.id) is not None

    # -- find ---------------------------------------------------------------------------------------------------------

    async def ask_runs(self, effect: do.AskRuns) -> on_.EffectReply:
        return on_.Runs(effect.number) if await self._sandbox.runs() else on_.DoesNotRun(effect.number)

    async def ask_held(self, effect: do.AskHeld) -> on_.EffectReply:
        try:
            held = await self._workspace.is_held()
        except TimeoutError:
            return on_.DialRefused(effect.number, "its bridge does not answer")
        except TreeFailed as error:
            if is_silence(error):
                return on_.Unavailable(effect.number, str(error))
            if error.code == "silent":
                return on_.DialRefused(effect.number, str(error))
            log.info("sync.not_found", session_id=self._log.id, cause=str(error))
            held = True
        return on_.StillHeld(effect.number) if held else on_.LetGo(effect.number)

    # -- stop ---------------------------------------------------------------------------------------------------------

    async def lull(self, effect: do.Lull) -> on_.EffectReply:
        try:
            await self._workspace.lull()
        except (SyncFailed, SyncRefused) as error:
            return on_.NotKept(effect.number, str(error))
        return on_.Lulled(effect.number)

    async def keep(self, effect: do.Keep) -> on_.EffectReply:
        number, workspace = effect.number, self._workspace
        if not await self._sandbox.runs():
            return on_.DoesNotRun(number)
        try:
            if effect.visit:
                await workspace.flush()
            else:
                await workspace.find()
                await workspace.settle()
        except (SyncFailed, SyncRefused) as error:
            if not await self._sandbox.runs():
                return on_.DoesNotRun(number)
            if isinstance(error, SyncFailed) and workspace.sync.overfull and (error.permanent or effect.visit):
                return on_.Overfull(number, error.reason)
            return on_.NotKept(number, str(error))
        return on_.WorkspaceKept(number, workspace.sync.remembered, workspace.replaced != self._replaced)

    async def stop(self, effect: do.StopSandbox) -> on_.EffectReply:
        await self._sandbox.stop()
        self._host.way_out.ended(self._log.id)
        return on_.Stopped(effect.number)

    async def look_after(self) -> bool:
        """A link was lost: return True if the sandbox has ended with it, as far as is known."""
        try:
            return not await self._sandbox.runs()
        except SandboxUnavailable:
            return False
        except Exception as error:
            log.error("session.work_failed", session_id=self._log.id, work="look after", exc_info=error)
            return False

    # -- delete, put back, sync ---------------------------------------------------------------------------------------

    async def write_archived(self, effect: do.WriteArchived) -> on_.EffectReply:
        return await self._write(on_.ArchivedWritten(effect.number))

    async def destroy(self, effect: do.Destroy) -> on_.EffectReply:
        try:
            await self._sandbox.destroy()
            self._host.way_out.ended(self._log.id)
            await self._workspace.forget()
        except SandboxUnavailable:
            raise
        except Exception as error:
            return self._failed(on_.NotDestroyed(effect.number, str(error)), error)
        return on_.Destroyed(effect.number)

    async def confirm_owner(self, effect: do.ConfirmOwner) -> on_.EffectReply:
        return await self._write(on_.OwnerConfirmed(effect.number))

    async def _write(self, done: on_.EffectReply) -> on_.EffectReply:
        """Return `done` when the state is durable. If another gateway has the session, this one's ends instead."""
        try:
            await self._host.durable()
        except ApiError as error:
            return self._failed(on_.StoreSilent(done.number), error)
        return done

    async def put_back(self, effect: do.PutBackGeneration) -> on_.EffectReply:
        try:
            await self._workspace.put_back(effect.generation)
        except Exception as error:
            return self._failed(on_.NotPutInPlace(effect.number, str(error)), error)
        return on_.PutInPlace(effect.number)

    async def flush(self, effect: do.Flush, replaced: int) -> on_.Flushed | on_.NotFlushed:
        """Store the files on the running sandbox's disk. `replaced`: how often the disk had been replaced at the time
        of the request."""
        number, session = effect.flush, self._log
        incarnation = session.state.incarnation
        try:
            if not await self._sandbox.runs():
                return on_.NotFlushed(number, DIED, died=True)
            try:
                await self._workspace.find()
                await self._workspace.flush()
            except (SyncFailed, SyncRefused) as error:
                died = session.state.incarnation != incarnation or not await self._sandbox.runs()
                return on_.NotFlushed(number, str(error), refused=isinstance(error, SyncRefused), died=died)
        except SandboxUnavailable as error:
            return on_.NotFlushed(number, str(error))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return on_.NotFlushed(number, "what it waited for was cancelled")
        except Exception as error:
            log.error("session.work_failed", session_id=session.id, work="Flush", exc_info=error)
            return on_.NotFlushed(number, SEE_LOG)
        return on_.Flushed(number, self._workspace.replaced != replaced)


PERFORM: dict[type[do.Asked], Callable[[SandboxWork, Any], Awaitable[on_.EffectReply]]] = {
    do.LookForNewest: SandboxWork.look,
    do.StartHeld: SandboxWork.start_held,
    do.Prepare: SandboxWork.prepare,
    do.Release: SandboxWork.release,
    do.AskRuns: SandboxWork.ask_runs,
    do.AskHeld: SandboxWork.ask_held,
    do.Lull: SandboxWork.lull,
    do.Keep: SandboxWork.keep,
    do.StopSandbox: SandboxWork.stop,
    do.WriteArchived: SandboxWork.write_archived,
    do.Destroy: SandboxWork.destroy,
    do.ConfirmOwner: SandboxWork.confirm_owner,
    do.PutBackGeneration: SandboxWork.put_back,
}


def _not_restored(number: int, error: NotRestored) -> on_.Unavailable | on_.Unrestorable:
    """A silent provider proves nothing about the workspace."""
    return (on_.Unavailable if is_silence(error) else on_.Unrestorable)(number, str(error))


def _broken(number: int) -> on_.StartFailed:
    return on_.StartFailed(number, BROKEN, bug=True)


def _is_cancelled() -> bool:
    """True if this task itself was cancelled, and not only the task that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


# The reply of an effect that failed with an unexpected error. An unknown state must not stop a sandbox.
BROKE: dict[type[do.Asked], Callable[[int], on_.EffectReply]] = {
    **dict.fromkeys((do.LookForNewest, do.StartHeld, do.Prepare, do.Release), _broken),
    do.Connect: lambda number: on_.DialRefused(number, SEE_LOG),
    do.AskRuns: lambda number: on_.Unavailable(number, SEE_LOG),
    do.AskHeld: lambda number: on_.Unavailable(number, SEE_LOG),
    do.Lull: lambda number: on_.NotKept(number, SEE_LOG),
    do.Keep: lambda number: on_.NotKept(number, SEE_LOG),
    do.StopSandbox: lambda number: on_.NotStopped(number, SEE_LOG),
    do.WriteArchived: on_.StoreSilent,
    do.ConfirmOwner: on_.StoreSilent,
    do.Destroy: lambda number: on_.NotDestroyed(number, SEE_LOG),
    do.PutBackGeneration: lambda number: on_.NotPutInPlace(number, SEE_LOG),
}
