"""A seeded world of sessions in which everything goes wrong, and the checker that knows the promises.

People in tabs send, resend, leave and come back; agents answer slowly, ask, crash; links are cut, bridges and
gateways killed; the store goes away, falls behind, refuses a record, has another writer. At the end all faults stop,
and stored, received and shown data are compared with sent and written data. `World` and virtual time make a run a
function of its seed.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Literal

from gateway.protocol.errors import ApiError
from gateway.session.model.delivery_window import WindowLimits
from gateway.session.model.ports import SessionLimits
from persistence.errors import StoreUnavailable
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess
from tests.support.faults import Fault
from tests.support.promises import check_session
from tests.support.sessions import World
from tests.support.simulated_agents import Agent, SlowFleet, Truth
from tests.support.simulated_people import POISON, Person

LIMITS = SessionLimits(
    window=WindowLimits(away_records=12, away_seconds=40.0, connected_records=30, link_records=4),
    sleep_after=60.0,
    crash_window=60.0,
)


class Simulation:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.truths: dict[str, Truth] = {}
        self.world = World(self._script, limits=LIMITS, seed=seed, spooled=self.rng.random() < 0.5)
        self.world.poison = POISON.encode()
        self.world.fleet = SlowFleet(self._script, self.rng)
        names = [f"s{number}" for number in range(self.rng.randint(1, 3))]
        self.truths = {name: Truth() for name in names}
        self.people = [
            Person(self.world, name, f"{name}.{who}", self.truths[name])
            for name in names
            for who in range(self.rng.randint(1, 2))
        ]
        self.reached: Counter[str] = Counter()
        self._count = 0
        deeds: dict[str, tuple[float, Callable[[], Awaitable[None] | None]]] = {
            "say": (12, self._say),
            "burst": (1, self._burst),
            "repeat": (2, self._repeat),
            "leave": (2, self._leave),
            "connect": (5, self._connect),
            "fresh": (1, self._connect_afresh),
            "link cut": (2, self._cut_link),
            "bridge killed": (1, self._kill_bridge),
            "bridge forgets": (0.5, self._forget),
            "agent killed": (1, self._kill_agent),
            "cut while taking": (1.5, self._cut_while_taking),
            "agent hangs": (0.7, self._hang),
            "agent reads on": (1, self._read_on),
            "gateway killed": (1.5, self._kill_gateway),
            "gateway leaves": (0.5, self._leave_gateway),
            "store away": (1, self._store_away),
            "store stalls": (1, self._store_stalls),
            "store held": (1, self._hold_store),
            "reply lost": (1, self._reply_lost),
            "store falls behind": (1, self._fall_behind),
            "owner moves": (0.7, self._move_owner),
            "sleep": (0.7, lambda: self._ask("sleep")),
            "pause": (0.4, lambda: self._ask("pause")),
            "resume": (1, lambda: self._ask("resume")),
            "wake": (1, lambda: self._ask("wake")),
            "abort": (0.7, self._abort),
            "cancel": (2.5, self._cancel),
            "close": (0.5, self._close),
            "start": (0.5, self._start),
            "start fails": (0.7, self._start_fails),
            "link refused": (0.5, self._link_refused),
            "slow tab": (0.7, self._slow_tab),
        }
        # A message that is refused after it reached the agent, with a gateway killed in the moment between, looks as
        # if it had never been sent: only the agent knows better. So with a spool there is either poison, or a gateway
        # that ends.
        self._poisons = not self.world.spooled or self.rng.random() < 0.5
        if self.world.spooled and self._poisons:
            del deeds["gateway killed"], deeds["gateway leaves"]
        calm = self.rng.random()
        self._deeds = {name: deed for name, deed in deeds.items() if deed[0] > 2 or self.rng.random() > calm * 0.8}
        self.trace: list[str] = []
        self.cancelled: set[tuple[str, int]] = set()  # session and seq of messages that somebody was told are cancelled

    def _script(self, process: ScriptedProcess) -> OnLine:
        return Agent(process, self.truths[process.spec.session_id]).on_line

    async def run(self, steps: int) -> None:
        async with self.world:
            for name in self.truths:
                await self.world.create(name)
            for person in self.people:
                await person.connect()
            names, weights = list(self._deeds), [weight for weight, _ in self._deeds.values()]
            async with asyncio.TaskGroup() as asides:
                self._asides = asides
                for _ in range(steps):
                    name = self.rng.choices(names, weights)[0]
                    self.reached[name] += 1
                    self.trace.append(f"{asyncio.get_running_loop().time():.3f} {name}")
                    outcome = self._deeds[name][1]()
                    if outcome is not None:
                        await outcome
                    await self._pass_time()
                await self._mend()
            await self._settle()
            for name, truth in self.truths.items():
                sandbox = self.world.fleet.sandboxes.get(name)
                people = [person for person in self.people if person.session_id == name]
                history = await self.world.history(name)
                taken_back = {seq for session, seq in self.cancelled if session == name}
                agent = sandbox.agent if sandbox else None
                self.reached += check_session(history, truth, people, agent, taken_back)
        for person in self.people:
            self.reached += person.reached

    async def _pass_time(self) -> None:
        kind = self.rng.random()
        if kind < 0.4:
            for _ in range(self.rng.randint(0, 6)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self.rng.choice([0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 15.0]) * self.rng.random() * 2)

    # -- events
    # --------------------------------------------------------------------------------------------------------

    def _someone(self) -> Person:
        return self.rng.choice(self.people)

    def _somewhere(self) -> str:
        return self.rng.choice(list(self.truths))

    def _later(self, least: float, most: float, deed: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self.rng.uniform(least, most), deed)

    def _say(self) -> None:
        person = self._someone()
        poison = 0.4 if self._poisons else 0.0
        deed = self.rng.choices(["-", "ask", "crash", "forge", "big", POISON], [8, 2, 0.6, 0.3, 0.2, poison])[0]
        chunks, pause = self.rng.randint(1, 4), self.rng.choice([0, 0, 0.01, 0.2, 0.9, 4.0])
        self._count += 1
        person.say(f"m{self._count} {chunks} {pause} {deed}")

    def _burst(self) -> None:
        for _ in range(self.rng.randint(5, 40)):
            self._say()

    def _repeat(self) -> None:
        person = self._someone()
        if person.sent:
            person.repeat(self.rng.choice(list(person.sent.values())))

    def _leave(self) -> None:
        self._someone().leave()

    async def _connect(self) -> None:
        await self._connect_in_time(self._someone(), resume=True)

    async def _connect_afresh(self) -> None:
        await self._connect_in_time(self._someone(), resume=False)

    async def _connect_in_time(self, person: Person, *, resume: bool) -> None:
        try:
            async with asyncio.timeout(5.0):
                await person.connect(resume=resume)
        except TimeoutError:
            self.reached["no session for 5 s"] += 1

    def _cut_link(self) -> None:
        if sandbox := self.world.fleet.sandboxes.get(self._somewhere()):
            sandbox.lose_link()

    def _kill_bridge(self) -> None:
        if (sandbox := self.world.fleet.sandboxes.get(self._somewhere())) and sandbox.alive:
            sandbox.crash()

    def _forget(self) -> None:
        if (sandbox := self.world.fleet.sandboxes.get(self._somewhere())) and sandbox.alive:
            sandbox.crash()
            sandbox.forget_taken()

    def _kill_agent(self) -> None:
        if (sandbox := self.world.fleet.sandboxes.get(self._somewhere())) and sandbox.agent:
            sandbox.agent.exit(None, "SIGKILL")

    def _cut_while_taking(self) -> None:
        if (sandbox := self.world.fleet.sandboxes.get(self._somewhere())) and sandbox.alive:
            # A bridge that only loses its link still passes on the records it noted.
            whats: list[Literal["link", "agent", "bridge"]] = ["agent", "bridge"]
            sandbox.cut_at = (sandbox.taken + self.rng.randint(1, 3), self.rng.choice(whats))

    def _hang(self) -> None:
        if (sandbox := self.world.fleet.sandboxes.get(self._somewhere())) and sandbox.agent:
            sandbox.agent.hang()

    def _read_on(self) -> None:
        for sandbox in self.world.fleet.sandboxes.values():
            if sandbox.agent:
                sandbox.agent.read_on()

    async def _kill_gateway(self) -> None:
        await self.world.kill()
        await self._open_gateway()

    async def _leave_gateway(self) -> None:
        if self.world.store.outage or not self.world.store.gate.is_set():
            return
        await self.world.leave()
        await self._open_gateway()

    async def _open_gateway(self) -> None:
        for person in self.people:
            person.leave()
        if self.rng.random() < 0.5:
            await asyncio.sleep(self.rng.choice([0.1, 3.0, 50.0]) * self.rng.random())
        await self.world.open()
        for person in self.people:
            if self.rng.random() < 0.7:
                await self._connect_in_time(person, resume=True)

    def _store_away(self) -> None:
        store = self.world.store
        if store.outage is None:
            store.outage = self.rng.choice([Fault.AWAY, Fault.AWAY, Fault.FULL])

            def back() -> None:
                store.outage = None

            self._later(0.01, 8.0, self._unless_killed(back))

    def _unless_killed(self, deed: Callable[[], None]) -> Callable[[], None]:
        store = self.world.store

        def maybe() -> None:
            if self.world.running and self.world.store is store:
                deed()

        return maybe

    def _store_stalls(self) -> None:
        store = self.world.store
        store.gate.clear()
        self._later(0.001, 3.0, store.gate.set)

    def _hold_store(self) -> None:
        self.world.queue.hold(self._somewhere(), self.rng.uniform(0.01, 20.0))

    def _reply_lost(self) -> None:
        self.world.store.faults[self.world.store.calls + self.rng.randint(1, 3)] = Fault.LOST_REPLY

    def _fall_behind(self) -> None:
        store = self.world.store
        store.held = True

        def follow() -> None:
            store.held = False

        self._later(0.01, 20.0, follow)

    async def _move_owner(self) -> None:
        # With a spool there is one node: a message that another node would take meanwhile is accepted and delivered
        # here.
        if not self.world.spooled:
            await self.world.steal(self._somewhere())

    def _ask(self, what: str) -> None:
        async def ask() -> None:
            try:
                async with asyncio.timeout(60.0):
                    actor = await self.world.actor(name)
                    if what == "resume":
                        await actor.resume(None)
                    elif what == "wake":
                        await actor.wake()
                    elif what == "pause":
                        await actor.pause()
                    else:
                        await actor.sleep()
            except (ApiError, StoreUnavailable, AssertionError, TimeoutError):
                self.reached[f"{what} refused"] += 1

        name = self._somewhere()
        self._asides.create_task(ask())

    def _cancel(self) -> None:
        """Take back one of the messages that wait, if any."""
        actor = self.world.sessions.loaded.get(self._somewhere()) if self.world.running else None
        waiting = actor.pending.listed() if actor is not None else []
        if actor is None or not waiting:
            return
        seq, pending = self.rng.choice(waiting)["seq"], actor.pending

        async def cancel() -> None:
            try:
                await pending.cancel(seq)
            except ApiError as error:
                self.reached[f"cancel {error.code}"] += 1
            else:
                self.cancelled.add((actor.id, seq))

        self._asides.create_task(cancel())

    def _abort(self) -> None:
        person = self._someone()
        if person.watching and person.tab:
            person.tab.send("abort")

    def _close(self) -> None:
        person = self._someone()
        if person.watching and person.tab:
            person.tab.send("close")

    def _start(self) -> None:
        person = self._someone()
        if person.watching and person.tab:
            person.tab.send("start", model="m")

    def _start_fails(self) -> None:
        self.world.fleet.start_failures.append("no room")

    def _link_refused(self) -> None:
        def again() -> None:
            self.world.fleet.link_problem = None

        self.world.fleet.link_problem = "not now"
        self._later(0.1, 6.0, again)

    def _slow_tab(self) -> None:
        person = self._someone()
        if person.tab:
            outlet = person.tab.outlet
            outlet.full = True

            def drained() -> None:
                outlet.full = False

            self._later(0.1, 30.0, drained)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _mend(self) -> None:
        self.world.store.outage = None
        self.world.store.gate.set()
        self.world.store.faults.clear()
        self.world.store.held = False
        self.world.fleet.link_problem = None
        self.world.fleet.start_failures.clear()
        for sandbox in self.world.fleet.sandboxes.values():
            sandbox.cut_at = None

    async def _settle(self) -> None:
        await self._mend()
        await asyncio.sleep(15.0)  # the queue tries again
        for name in self.truths:
            try:
                await (await self.world.actor(name)).resume(None)
            except ApiError:  # its owner has moved, and this one did not know
                await (await self.world.actor(name)).resume(None)
        for _ in range(12):
            self._read_on()
            for person in self.people:
                if not person.watching:
                    await person.connect()
                person.ask_again()
            await asyncio.sleep(30.0)
        for name in self.truths:
            actor = await self.world.actor(name)
            assert actor.describe()["pending"] == 0, f"{name}: something waits for ever"
            assert actor.idle_seconds() > 0, f"{name}: an answer is owed for ever"
