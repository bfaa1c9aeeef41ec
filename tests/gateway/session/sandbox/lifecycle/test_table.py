"""Every pair of stage and event; and long runs in a world where anything may fail, die, or say nothing."""

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import structs

from gateway.session.model.state import SessionStatus
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle.life import Life, LifeStage
from gateway.session.sandbox.lifecycle.table import TABLE, ImpossibleEvent, on
from tests.support.lives import LIMITS, World

T = TypeVar("T")
OVER = (LifeStage.LEFT, LifeStage.ENDED)
AWAITS_NOTHING = (LifeStage.REST, LifeStage.UP, LifeStage.GREETING, LifeStage.LEFT, LifeStage.ENDED)
LINKED = (LifeStage.UP, LifeStage.GREETING, LifeStage.SURVEYING, LifeStage.LULLING, LifeStage.ENDING, LifeStage.KEEPING)


def at(stage: LifeStage) -> Life:
    life = Life(LIMITS, Random(1), stage=stage, number=9, restart=8, status=SessionStatus.RUNNING)
    life.awaited = 0 if stage in AWAITS_NOTHING else 9
    life.link = 7 if stage in LINKED else 0
    life.flushes = {6: on_.SyncNow(5)}
    return life


def about(event: type, life: Life) -> Any:
    """An event that is not late."""
    if issubclass(event, on_.LifeCommand):
        return event(1)
    if issubclass(event, on_.EffectReply):
        return event(life.awaited)
    if issubclass(event, on_.FromLink):
        return event(life.link)
    if event is on_.RestartDue:
        return event(8)
    return event(6) if event in on_.FLUSHES else event()


@pytest.mark.parametrize("stage", LifeStage)
def test_every_event_has_a_step_or_is_refused_by_name(stage: LifeStage) -> None:
    for kind in on_.EVENTS:
        life = at(stage)
        before = copy.deepcopy(life)
        if kind in TABLE[stage]:
            on(life, about(kind, life), on_.Facts())
        else:
            with pytest.raises(ImpossibleEvent, match=f"{kind.__name__} in {stage}"):
                on(life, about(kind, life), on_.Facts())
            assert [getattr(life, f.name) for f in fields(life) if f.name not in ("rng", "patience")] == [
                getattr(before, f.name) for f in fields(life) if f.name not in ("rng", "patience")
            ]


def test_the_table_knows_every_stage_and_no_event_that_does_not_exist() -> None:
    assert set(TABLE) == set(LifeStage)
    assert {kind for row in TABLE.values() for kind in row} == set(on_.EVENTS)


@pytest.mark.parametrize("stage", LifeStage)
def test_commands_and_notices_may_come_at_every_stage(stage: LifeStage) -> None:
    assert {*on_.COMMANDS, *on_.NOTICES, *on_.FLUSHES} <= set(TABLE[stage])


@pytest.mark.parametrize("stage", LifeStage)
def test_a_link_may_say_anything_where_there_is_one_and_nothing_elsewhere(stage: LifeStage) -> None:
    assert set(on_.LINK_EVENTS) & set(TABLE[stage]) == (set(on_.LINK_EVENTS) if stage in LINKED else set())


@pytest.mark.parametrize("stage", LifeStage)
def test_late_words_change_nothing_and_what_they_bring_is_given_back(stage: LifeStage) -> None:
    for kind in on_.EVENTS:
        life = at(stage)
        if issubclass(kind, on_.EffectReply):
            back = (do.Cancel(3),) if kind in (on_.TurnGiven, on_.Linked) else ()
            assert on(life, kind(3), on_.Facts()) == back
        elif issubclass(kind, on_.FromLink) or kind in on_.FLUSHES or kind is on_.RestartDue:
            assert on(life, kind(3), on_.Facts()) == ()
        assert life.stage is stage


def test_an_answer_to_what_nobody_asked_for_is_a_bug() -> None:
    with pytest.raises(ImpossibleEvent, match="WorkspaceKept answers effect 10, and nobody asked"):
        on(at(LifeStage.KEEPING), on_.WorkspaceKept(10), on_.Facts())


PICK = st.integers(0, 23)


def some(choices: Sequence[T], pick: int) -> T:
    return choices[pick % len(choices)]


NOTICES = (on_.AgentWanted, on_.EndAgent, on_.EnvGiven, on_.Idle, on_.Rescue)
COMMANDS = (on_.Wake, on_.Resume, on_.Sleep, on_.Pause, on_.Delete, on_.SyncNow, on_.PutBack, on_.Revive)


class Lives(RuleBasedStateMachine):
    """One session, several gateways one after the other, and a world that does what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.life = Life(LIMITS, Random(1))
        self.now = 0.0
        self.waiting = False
        self.asks = 0
        self.owed: set[int] = set()

    def event(self, event: on_.Event, **facts: Any) -> None:
        facts = {"idle": True, **facts}
        self.world.perform(on(self.life, event, on_.Facts(now=self.now, waiting=self.waiting, **facts)), self.life)

    def _reply(self, effect: do.Asked, reply: type[on_.EffectReply], *, half: bool = False) -> None:
        if not issubclass(reply, on_.Underway):
            del self.world.pending[effect.number]
        self.world.happens(effect, reply, half=half)
        self.event(reply(effect.number), lacks_env=self.asks % 11 == 10, forbidden="no" if self.asks % 11 == 9 else "")

    @property
    def _pending(self) -> do.Asked:
        return next(iter(self.world.pending.values()))

    # -- what people do -----------------------------------------------------------------------------------------------

    @rule(command=st.sampled_from(COMMANDS), full=st.sampled_from(["", "", "full"]), nobody=st.booleans())
    def somebody_asks(self, command: type[on_.LifeCommand], full: str, nobody: bool) -> None:
        ask = 0 if nobody and command is on_.SyncNow else self.asks + 1
        self.asks = max(self.asks, ask)
        self.owed |= {ask} - {0}
        self.event(command(ask), full=full)

    @rule(empty=st.booleans(), keep=st.booleans())
    def somebody_resumes(self, empty: bool, keep: bool) -> None:
        self.asks += 1
        self.owed.add(self.asks)
        self.event(on_.Resume(self.asks, empty, keep))

    @precondition(lambda self: self.owed - set(self.world.answered))
    @rule(pick=PICK)
    def somebody_waits_no_longer(self, pick: int) -> None:
        ask = some(sorted(self.owed - set(self.world.answered)), pick)
        self.owed.discard(ask)
        self.event(on_.Withdraw(ask))
        assert ask not in self.world.answered

    @rule(notice=st.sampled_from(NOTICES), idle=st.booleans())
    def something_is_wanted(self, notice: type[on_.Notice], idle: bool) -> None:
        self.event(notice(), idle=idle)

    @rule()
    def the_registry_looks_again(self) -> None:
        self.event(on_.SessionLoaded(self.world.runs))

    @rule(waiting=st.booleans(), seconds=st.sampled_from([0.1, 5.0, 400.0]))
    def time_passes(self, waiting: bool, seconds: float) -> None:
        self.waiting, self.now = waiting, self.now + seconds

    @precondition(lambda self: self.world.timers)
    @rule()
    def a_restart_is_due(self) -> None:
        self.event(on_.RestartDue(self.world.timers.pop(0)))

    # -- what the world does ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.pending)
    @rule()
    def an_effect_succeeds(self) -> None:
        effect = self._pending
        self._reply(effect, self.world.possible(effect)[0])

    @precondition(lambda self: self.world.pending)
    @rule(pick=PICK, half=st.booleans())
    def an_effect_ends_somehow(self, pick: int, half: bool) -> None:
        effect = self._pending
        reply = some(self.world.possible(effect), pick)
        self._reply(effect, reply, half=half and reply is on_.Unavailable)

    @precondition(lambda self: self.world.given_up)
    @rule(pick=PICK)
    def an_effect_that_was_given_up_is_answered(self, pick: int) -> None:
        number = some(sorted(self.world.given_up), pick)
        effect = self.world.given_up.pop(number)
        reply = self.world.possible(effect)[0]
        if reply in (on_.TurnGiven, on_.Linked):
            self.world.happens(effect, reply)
        self.event(reply(number))
        assert number not in self.world.turns | self.world.links, "it is given back"

    @precondition(lambda self: self.world.flushes)
    @rule(well=st.booleans(), refused=st.booleans(), replaced=st.booleans())
    def a_sync_ends(self, well: bool, refused: bool, replaced: bool) -> None:
        flush, world = self.world.flushes.pop(0), self.world
        if well and world.runs and world.prepared and not world.held:
            world.kept = world.disk
            self.event(on_.Flushed(flush, replaced))
        else:
            self.event(on_.NotFlushed(flush, "no", refused=refused and world.runs, died=not world.runs))

    @precondition(lambda self: self.world.runs)
    @rule()
    def the_sandbox_dies(self) -> None:
        self.world.ends()

    @precondition(lambda self: self.life.link)
    @rule(reason=st.sampled_from(["cut"]))
    def the_link_is_lost(self, reason: str) -> None:
        self.event(on_.LinkLost(self.life.link, reason))

    def hello_is_due(self) -> bool:
        return bool(self.life.link) and self.life.link not in self.world.greeted and self.world.runs

    @precondition(lambda self: self.hello_is_due())
    @rule()
    def the_bridge_says_hello(self) -> None:
        world = self.world
        world.greeted.add(self.life.link)
        if self.life.stage in (LifeStage.UP, LifeStage.GREETING) and not (world.held or world.frozen):
            world.unreachable = 0
        self.event(on_.BridgeHello(self.life.link, held=world.held or world.frozen))

    @precondition(lambda self: self.world.hellos)
    @rule()
    def a_hello_is_dealt_with(self) -> None:
        self.event(on_.GreetingDone(self.world.hellos.pop(0), alive=self.world.agent))

    @precondition(lambda self: self.life.link and self.world.agent and self.life.greeted)
    @rule(code=st.sampled_from([None, 0, 1]))
    def the_agent_ends(self, code: int | None) -> None:
        self.world.agent = False
        self.event(on_.AgentExited(self.life.link, code, "it ended"))

    @precondition(lambda self: self.life.link and self.world.agent and self.life.greeted)
    @rule(well=st.booleans())
    def the_agent_starts(self, well: bool) -> None:
        self.world.agent = well
        kind = on_.AgentReady(self.life.link) if well else on_.AgentProblem(self.life.link, "no such program")
        self.event(kind)

    @precondition(lambda self: self.world.agent and self.world.runs and not self.world.frozen)
    @rule()
    def the_agent_writes(self) -> None:
        assert not self.world.held
        self.world.disk += 1

    # -- what the gateway does ----------------------------------------------------------------------------------------

    @rule(how=st.sampled_from([on_.Leave, on_.End]))
    def the_gateway_lets_go(self, how: type[on_.Notice]) -> None:
        self.event(how())
        waits = {command.ask for command in self.life.flushes.values()}
        assert self.owed - waits <= set(self.world.answered), "everybody is answered, but for syncs that go on"
        assert how is on_.Leave or not waits

    @rule()
    def another_gateway_takes_over(self) -> None:
        old, world, self.owed = world_of(self.world), self.world, set()
        self.life = Life(LIMITS, Random(1), number=self.life.number, **old)
        for under_way in (world.pending, world.given_up, world.links, world.turns):
            under_way.clear()
        for due in (world.timers, world.flushes, world.hellos):
            due.clear()
        self.event(on_.SessionLoaded(world.runs))

    @precondition(lambda self: self.life.stage not in OVER)
    @rule()
    def all_goes_well_for_a_while(self) -> None:
        """Everybody is answered, and nothing stays under way."""
        for _ in range(300):
            if self.world.flushes:
                self.a_sync_ends(well=True, refused=False, replaced=False)
            elif self.world.pending:
                self.an_effect_succeeds()
            elif self.life.link and not self.world.runs:
                self.the_link_is_lost("it ended")
            elif self.world.hellos:
                self.a_hello_is_dealt_with()
            elif self.life.link and self.life.link not in self.world.greeted:
                self.the_bridge_says_hello()
            else:
                break
        assert self.life.stage in (LifeStage.REST, LifeStage.UP)
        assert self.owed <= set(self.world.answered)
        assert not self.world.turns

    # -- the promises -------------------------------------------------------------------------------------------------

    @invariant()
    def who_asked_is_answered_or_waits(self) -> None:
        life = self.life
        waits = [*life.asks, *(command.ask for command in life.line)]
        waits += [command.ask for command in life.flushes.values()]
        waits = [ask for ask in waits if ask]
        assert len(waits) == len(set(waits)), "one place for each"
        assert set(waits) == self.owed - set(self.world.answered)

    @invariant()
    def one_thing_is_under_way(self) -> None:
        assert list(self.world.pending) == ([self.life.awaited] if self.life.awaited else [])
        assert self.world.links <= {self.life.link} - {0}
        assert self.world.turns <= {self.life.turn} - {0}

    @invariant()
    def nothing_runs_at_rest(self) -> None:
        assert self.life.stage is not LifeStage.REST or not self.world.runs

    @invariant()
    def what_is_called_clean_is_kept(self) -> None:
        stored = self.world.stored
        if stored is not None and stored.clean and stored.status is not SessionStatus.ARCHIVED:
            assert self.world.disk == self.world.kept

    @invariant()
    def the_line_is_bounded(self) -> None:
        assert len(self.life.line) <= 102


def world_of(world: World) -> dict[str, Any]:
    """What the next gateway loads."""
    if (stored := world.stored) is None:
        return {}
    return {name.name: getattr(stored, name.name) for name in structs.fields(stored)}


TestLives = Lives.TestCase


PROMISES: tuple[Callable[[Lives], None], ...] = (
    Lives.who_asked_is_answered_or_waits,
    Lives.one_thing_is_under_way,
    Lives.nothing_runs_at_rest,
    Lives.what_is_called_clean_is_kept,
    Lives.the_line_is_bounded,
)


def walk(seed: int, steps: int) -> None:
    """The same machine, with dice that let most things go well: such a life gets further."""
    rng, lives = Random(seed), Lives()
    ends: list[type[on_.Notice]] = [on_.Leave, on_.End]

    def flip() -> bool:
        return rng.random() < 0.5

    def pick() -> int:
        return rng.randrange(24)

    moves: list[tuple[float, Callable[[], bool], Callable[[], None]]] = [
        (30, lambda: bool(lives.world.pending), lambda: lives.an_effect_succeeds()),
        (8, lambda: bool(lives.world.pending), lambda: lives.an_effect_ends_somehow(pick(), flip())),
        (9, lambda: True, lambda: lives.somebody_asks(rng.choice(COMMANDS), rng.choice(["", "", "full"]), flip())),
        (2, lambda: True, lambda: lives.somebody_resumes(flip(), flip())),
        (2, lambda: bool(lives.owed - set(lives.world.answered)), lambda: lives.somebody_waits_no_longer(pick())),
        (6, lambda: True, lambda: lives.something_is_wanted(rng.choice(NOTICES), flip())),
        (1, lambda: True, lambda: lives.the_registry_looks_again()),
        (4, lambda: True, lambda: lives.time_passes(flip(), rng.choice([0.1, 5.0, 400.0]))),
        (4, lambda: bool(lives.world.timers), lambda: lives.a_restart_is_due()),
        (2, lambda: bool(lives.world.given_up), lambda: lives.an_effect_that_was_given_up_is_answered(pick())),
        (5, lambda: bool(lives.world.flushes), lambda: lives.a_sync_ends(flip(), flip(), flip())),
        (1.5, lambda: lives.world.runs, lambda: lives.the_sandbox_dies()),
        (2, lambda: bool(lives.life.link), lambda: lives.the_link_is_lost("cut")),
        (9, lives.hello_is_due, lambda: lives.the_bridge_says_hello()),
        (9, lambda: bool(lives.world.hellos), lambda: lives.a_hello_is_dealt_with()),
        (3, lambda: bool(lives.life.link and lives.world.agent), lambda: lives.the_agent_ends(rng.choice([0, 1]))),
        (9, lambda: bool(lives.life.link and lives.world.agent), lambda: lives.the_agent_starts(rng.random() < 0.8)),
        (6, lambda: lives.world.agent and not lives.world.frozen, lambda: lives.the_agent_writes()),
        (0.5, lambda: True, lambda: lives.the_gateway_lets_go(rng.choice(ends))),
        (1, lambda: True, lambda: lives.another_gateway_takes_over()),
        (0.5, lambda: lives.life.stage not in OVER, lambda: lives.all_goes_well_for_a_while()),
    ]  # fmt: skip
    for _ in range(steps):
        can = [(weight, move) for weight, enabled, move in moves if enabled()]
        rng.choices([move for _, move in can], [weight for weight, _ in can])[0]()
        for promise in PROMISES:
            promise(lives)


SEEDS = 10_000 if os.environ.get("HOLDFAST_TEST_SOAK") else 60


def test_the_promises_hold_over_long_lives() -> None:
    for seed in range(SEEDS):
        try:
            walk(seed, 300)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
