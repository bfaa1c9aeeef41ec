"""A session's life driven by hand, and a model of the world that performs its effects: a provider, one disk, a store
and a link that may answer, fail, die or say nothing. The model checks the promises of
gateway/session/sandbox/lifecycle/table.py with each effect."""

from random import Random
from typing import Any, TypeVar

from msgspec.structs import replace

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import Life, LifeLimits, LifeStage
from gateway.session.sandbox.lifecycle.table import on

E = TypeVar("E", bound=do.Effect)
LIMITS = LifeLimits(crashes=3, crash_window=300.0, link_attempts=3, stop_seconds=10.0)


class Played:
    """A life, and all that it asked for. `answer` answers the effect that is awaited."""

    def __init__(self, **state: Any) -> None:
        self.life = Life(LIMITS, Random(1), **state)
        self.last: tuple[do.Effect, ...] = ()
        self.all: list[do.Effect] = []
        self.facts: dict[str, Any] = {}
        self._asks = 0
        self._alive = False  # whether an agent runs, when a hello is dealt with

    def event(self, event: on_.Event, **facts: Any) -> tuple[do.Effect, ...]:
        known = on_.Facts(**{**self.facts, **facts})
        self.last = on(self.life, event, known)
        if self.now_does(do.HearHello):
            self.last += on(self.life, on_.GreetingDone(self.life.link, self._alive), known)
        self.all += self.last
        return self.last

    def ask(self, command: type[on_.LifeCommand], *, given: dict[str, Any] | None = None, **facts: Any) -> int:
        """The number of who asked."""
        self._asks += 1
        self.event(command(self._asks, **(given or {})), **facts)
        return self._asks

    def answer(self, *replies: type[on_.EffectReply], facts: dict[str, Any] | None = None, **members: Any) -> None:
        for reply in replies:
            self.event(reply(self.life.awaited, **members), **(facts or {}))

    def hear(self, event: type[on_.FromLink], *, given: dict[str, Any] | None = None, **facts: Any) -> None:
        """An event of the link. A running agent (`alive`) is known once its hello is handled."""
        given = given or {}
        self._alive = given.pop("alive", False) if event is on_.BridgeHello else False
        self.event(event(self.life.link, **given), **facts)

    def start(self) -> "Played":
        self.answer(on_.TurnGiven, on_.Looked, on_.SandboxStarted, on_.Prepared, on_.AgentReleased, on_.Linked)
        return self

    def alive(self) -> "Played":
        """Up, greeted, and an agent runs."""
        self.event(on_.AgentWanted())
        self.start()
        self.hear(on_.BridgeHello)
        self.hear(on_.AgentReady)
        return self

    def stop(self) -> "Played":
        """What a stop asks for, up to its end."""
        self.answer(on_.Lulled)
        if self.life.stage is LifeStage.ENDING:
            self.hear(on_.AgentExited)
        self.answer(on_.WorkspaceKept, on_.Stopped)
        return self

    def at(self) -> tuple[LifeStage, SessionStatus]:
        return self.life.stage, self.life.status

    def did(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.all if type(effect) is kind]

    def now_does(self, kind: type[do.Effect]) -> bool:
        return any(type(effect) is kind for effect in self.last)

    def outcome(self, ask: int) -> str | None:
        """`ok`, the code of a refusal, or None: there is no answer yet."""
        said = ["ok" for answer in self.did(do.Answer) if answer.ask == ask]
        said += [refusal.code for refusal in self.did(do.RefuseAsk) if refusal.ask == ask]
        assert len(said) <= 1, f"{ask} was answered twice"
        return said[0] if said else None


class World:
    """The outside of one session. `disk` counts its writes, `kept` is what the store has of it."""

    def __init__(self) -> None:
        self.runs = False
        self.held = False  # the agent of the running sandbox was not released
        self.frozen = False
        self.prepared = False  # the running sandbox was prepared, by this or an earlier gateway
        self.unseen = False  # programs of the running sandbox would not see restored files
        self.agent = False
        self.fetching = False  # a start waits for its image
        self.disk = self.kept = 0
        self.begun = 0  # the disk's count when the running sandbox started
        self.overfull = False
        self.unreachable = 0  # links refused in a row
        self.stored: do.Save | None = None
        self.archived_durable = False
        self.pending: dict[int, do.Asked] = {}
        self.given_up: dict[int, do.Asked] = {}
        self.flushes: list[int] = []
        self.timers: list[int] = []
        self.links: set[int] = set()
        self.turns: set[int] = set()
        self.answered: list[int] = []
        self.hellos: list[int] = []  # said, and not dealt with yet: the links'
        self.greeted: set[int] = set()  # links that have said hello

    def perform(self, effects: tuple[do.Effect, ...], life: Life) -> None:
        for effect in effects:
            self._perform(effect, life)
        assert len(self.pending) <= 1, f"two things at once: {self.pending}"

    def _perform(self, effect: do.Effect, life: Life) -> None:
        match effect:
            case do.Asked():
                self._check(effect, life)
                self.pending[effect.number] = effect
                self.fetching = False
            case do.Cancel(number):
                if number in self.pending:
                    self.given_up[number] = self.pending.pop(number)
                self.links.discard(number)
                self.turns.discard(number)
                self.timers = [timer for timer in self.timers if timer != number]
            case do.EndTurn(number):
                assert number in self.turns, "a turn that nobody has is ended"
                self.turns.discard(number)
            case do.DropLink(link):
                self.links.discard(link)
            case do.HearHello(link):
                assert link in self.links
                self.hellos.append(link)
            case do.StartAgent(link):
                assert link in self.links
                assert not self.runs or (self.prepared and not self.held), "an agent starts unrestored"
                self.agent = self.runs
            case do.TellAgentToStop(link):
                assert link in self.links
            case do.Flush(flush):
                self.flushes.append(flush)
            case do.Thaw():
                self.frozen = False
            case do.ScheduleRestart(number, _):
                self.timers.append(number)
            case do.Save():
                self.stored = effect
                if effect.status is not SessionStatus.ARCHIVED:
                    self.archived_durable = False
            case do.Answer(ask) | do.RefuseAsk(ask, _, _):
                assert ask not in self.answered, f"{ask} is answered twice"
                self.answered.append(ask)

    def _check(self, effect: do.Asked, life: Life) -> None:
        match effect:
            case do.StartHeld():
                assert not self.runs or self.unseen, "a sandbox starts beside another"
            case do.Release():
                assert self.prepared or not self.runs, "it is let go unrestored"
                assert not self.unseen, "its programs see what was there before"
            case do.StopSandbox() if not self.held and not self.frozen and self.disk not in (self.kept, self.begun):
                excused = life.to is SessionStatus.ARCHIVED or self.overfull
                assert excused or self.unreachable >= LIMITS.link_attempts, "it is stopped before it is kept"
            case do.Destroy():
                assert self.archived_durable, "it is destroyed before that is durable"

    # -- possible results of an effect
    # --------------------------------------------------------------------------------

    def possible(self, effect: do.Asked) -> list[type[on_.EffectReply]]:
        """Which answers are true; the first is the one that is hoped for."""
        match effect:
            case do.AskTurn():
                return [on_.TurnGiven]
            case do.LookForNewest():
                return [on_.Looked, on_.Unrestorable]
            case do.StartHeld():
                if self.fetching:
                    return [on_.ImageFetched, on_.StartFailed, on_.Unavailable]
                return [on_.SandboxStarted, on_.StartFailed, on_.Unavailable, on_.ImageAwaited]
            case do.Prepare():
                fails = [on_.Unrestorable, on_.Unavailable]
                unseen = [] if effect.empty or effect.visit else [on_.RestoredUnseen]
                return [on_.Prepared, *unseen, *fails] if self.runs else [*fails, on_.StartFailed]
            case do.Release():
                replies: list[type[on_.EffectReply]] = [on_.AgentReleased] if self.runs else []
                replies += [on_.Unrestorable, on_.StartFailed, on_.Unavailable]
                return [*replies, on_.StoreSilent] if effect.bounded else replies
            case do.Connect():
                return [*([on_.Linked] if self.runs else []), on_.DialRefused, on_.Unavailable]
            case do.AskRuns():
                return [on_.Runs if self.runs else on_.DoesNotRun, on_.Unavailable]
            case do.AskHeld():
                if not self.runs:
                    return [on_.DialRefused, on_.Unavailable]
                return [on_.StillHeld if self.held or self.frozen else on_.LetGo, on_.DialRefused, on_.Unavailable]
            case do.Lull():
                return [on_.Lulled, on_.NotKept]
            case do.Keep():
                if not self.runs:
                    return [on_.DoesNotRun, on_.Unavailable]
                return [on_.WorkspaceKept, on_.NotKept, on_.Overfull, on_.Unavailable]
            case do.StopSandbox():
                return [on_.Stopped, on_.NotStopped, on_.Unavailable]
            case do.WriteArchived():
                return [on_.ArchivedWritten, on_.StoreSilent]
            case do.Destroy():
                return [on_.Destroyed, on_.NotDestroyed, on_.Unavailable]
            case do.ConfirmOwner():
                return [on_.OwnerConfirmed, on_.StoreSilent]
            case do.PutBackGeneration():
                return [on_.PutInPlace, on_.NotPutInPlace]
        assert isinstance(effect, do.Schedule)
        return [on_.Due]

    def happens(self, effect: do.Asked, reply: type[on_.EffectReply], *, half: bool = False) -> None:
        """What `reply` reports has happened. `half`: it happened although nobody reports it."""
        if reply is on_.TurnGiven:
            self.turns.add(effect.number)
        elif reply in (on_.ImageAwaited, on_.ImageFetched):
            self.fetching = reply is on_.ImageAwaited
        elif reply is on_.Linked:
            self.links.add(effect.number)
        elif reply is on_.LetGo:
            self.unreachable = 0
        elif reply is on_.DialRefused:
            self.unreachable += 1
        elif reply is on_.SandboxStarted or (half and isinstance(effect, do.StartHeld)):
            self.runs, self.held, self.frozen, self.prepared, self.agent = True, True, False, False, False
            self.begun, self.unreachable, self.unseen = self.disk, 0, False
        elif reply is on_.Prepared:
            self.prepared = True
        elif reply is on_.RestoredUnseen or (half and isinstance(effect, do.Prepare) and effect.number % 2):
            self.unseen = self.runs
        elif reply is on_.AgentReleased or (half and isinstance(effect, do.Release)):
            self.held = False
            assert self.stored is not None, "it was said to start"
            self.stored = replace(self.stored, clean=False, overfull=False, has_workspace=True)
        elif reply is on_.WorkspaceKept:
            self.kept, self.overfull = self.disk, False
            self._freeze(effect)
        elif reply is on_.Overfull:
            self.overfull = True
            self._freeze(effect)
        elif reply is on_.Stopped:
            self.ends()
        elif reply is on_.ArchivedWritten:
            self.archived_durable = True
        elif reply in (on_.Destroyed, on_.PutInPlace):
            self.disk = self.kept = 0

    def _freeze(self, effect: do.Asked) -> None:
        if isinstance(effect, do.Keep) and not effect.visit:
            self.frozen, self.agent = True, False

    def ends(self) -> None:
        self.begun = self.disk
        self.runs = self.held = self.frozen = self.prepared = self.agent = self.unseen = False
