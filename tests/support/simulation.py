"""A seeded world of sessions in which everything goes wrong, and the checker that knows what was promised.

People in tabs send, resend, leave and come back; agents answer slowly, ask, crash; links are cut, bridges and
gateways killed, the store goes away. In the end everything is mended, and what was kept, received and shown is
compared with what was sent and written. `World` and virtual time make a run a function of its seed.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from gateway.errors import ApiError
from gateway.session.pending import WindowLimits
from gateway.session.ports import SessionLimits
from gateway.wire import OWN_TYPES
from persistence.errors import StoreUnavailable
from sandbox.ports import Link, LinkEvents, Position, SandboxSpec
from sandbox.providers.memory import MemoryProvider
from sandbox.providers.scripted import OnLine, Script, ScriptedProcess
from tests.support.faults import Fault
from tests.support.sessions import Tab, World

LIMITS = SessionLimits(
    window=WindowLimits(away_records=12, away_seconds=40.0, connected_records=30, link_records=4),
    sleep_after=60.0,
    crash_window=60.0,
)
UNDECIDED = ("storage_unavailable", "storage_full")


@dataclass
class Truth:
    """What one session's agents really did."""

    written: dict[str, list[bytes]] = field(default_factory=dict)
    received: list[int] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)  # request ids of the answers it was given
    texts: dict[int, str] = field(default_factory=dict)  # what it said so far in answer to a message
    started: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Sent:
    cid: str
    text: str
    times: int = 0
    seq: int | None = None
    refused: str | None = None


class Agent:
    """Answers one message after the other, as each message says: `<name> <chunks> <pause> <deed>`."""

    def __init__(self, process: ScriptedProcess, truth: Truth) -> None:
        self._process = process
        self._truth = truth
        self._todo: list[dict[str, Any]] = []
        self._busy = False
        self._waits: dict[str, Callable[[], None]] = {}
        truth.written[process.epoch] = []

    def write(self, **frame: Any) -> None:
        if self._process.alive:
            line = json.dumps(frame).encode()
            self._truth.written[self._process.epoch].append(line)
            self._process.emit(line)

    def on_line(self, line: bytes) -> None:
        frame = json.loads(line)
        match frame["type"]:
            case "message":
                self._truth.received.append(frame["seq"])
                self._todo.append(frame)
                self._next()
            case "permission_response":
                self._truth.received.append(frame["seq"])
                self._truth.answers.append(frame["requestId"])
                self._waits.pop(frame["requestId"])()
            case "start":
                self._truth.started.append(frame)

    def _next(self) -> None:
        if self._todo and not self._busy:
            self._busy = True
            frame = self._todo.pop(0)
            name, chunks, pause, deed = frame["content"].split()
            self._truth.texts[frame["seq"]] = ""
            self._step(frame["seq"], name, int(chunks), float(pause), deed)

    def _step(self, seq: int, name: str, left: int, pause: float, deed: str) -> None:
        def go_on() -> None:
            if left:
                text = f"{name}-{left} " + ("x" * 90_000 if deed == "big" else "")
                self._truth.texts[seq] += text
                self.write(type="chunk", text=text)
                self._step(seq, name, left - 1, pause, "" if deed == "ask" else deed)
            elif deed == "crash":
                self._process.exit(3)
            else:
                self.write(type="done", metadata={"answers": seq})
                self._busy = False
                self._next()

        if deed == "ask":
            request = f"{self._process.epoch}-{seq}"
            self._waits[request] = go_on
            self.write(type="tool_permission_request", requestId=request, toolName="rm", toolInput={})
        elif deed == "forge":
            self.write(type="ack", cid="none", seq=1)
            self._step(seq, name, left, pause, "")
        elif pause:
            self._process.later(pause, go_on)
        else:
            go_on()


class Person:
    """Sends in order, resends what was not answered when it comes back, resumes where it was, grants everything."""

    def __init__(self, world: World, session_id: str, name: str, truth: Truth) -> None:
        self.session_id = session_id
        self.name = name
        self.tab: Tab | None = None
        self.sent: dict[str, Sent] = {}
        self.granted: dict[str, str] = {}  # cid -> request id
        self.settled_grants: Counter[str] = Counter()
        self._tabs: list[Tab] = []
        self.place: Position | None = None
        self.told: dict[str, str] = {}  # cid -> expired or interrupted
        self.reached: Counter[str] = Counter()
        self._world = world
        self._truth = truth
        self._asked: Position | None = None
        self._welcomes = 0
        self._shown = False  # whether it saw a frame of the present process

    @property
    def watching(self) -> bool:
        return self.tab is not None and not self.tab.outlet.closed

    async def connect(self, *, resume: bool = True) -> None:
        self.leave()
        self._asked = self.place if resume else None
        try:
            actor = await self._world.registry.find(self.session_id)
        except StoreUnavailable:
            return
        if actor is None:
            return
        self._welcomes = 0
        self.tab = tab = Tab(actor)
        tab.outlet.on_frame = self._on_frame
        actor.post(actor.attach, tab.viewer, self._asked)
        self.ask_again()

    def ask_again(self) -> None:
        """Read everything, and repeat what was not decided."""
        assert self.tab is not None
        self.tab.outlet.full = False
        for sent in self.sent.values():
            if sent.seq is None and sent.refused is None:
                self._say(sent)
        for cid, request in self.granted.items():
            self.tab.send("permission_response", cid=cid, requestId=request, allow=True)

    def leave(self) -> None:
        if self.tab is not None:
            tab, self.tab = self.tab, None
            self._tabs.append(tab)
            tab.leave()

    def say(self, text: str) -> None:
        sent = Sent(f"{self.name}-{len(self.sent)}", text)
        self.sent[sent.cid] = sent
        self._say(sent)

    def repeat(self, sent: Sent) -> None:
        if sent.refused is None:
            self._say(sent)

    def _say(self, sent: Sent) -> None:
        if self.watching and self.tab is not None:
            sent.times += 1
            self.tab.say(sent.text, sent.cid)

    @property
    def lost_nacks(self) -> set[str]:
        """Refusals that nobody heard: what was sent behind them and kept may come before what is sent again."""
        unsent = (json.loads(text) for tab in self._tabs for text in tab.outlet.unsent)
        return {frame["cid"] for frame in unsent if frame["type"] == "nack"}

    def _on_frame(self, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        if "_offset" in frame:
            self._on_output(frame)
        if kind == "welcome":
            self._on_welcome(frame)
        elif kind == "ack":
            self._on_ack(frame)
        elif kind == "nack":
            self._on_nack(frame)
        elif kind in ("expired", "interrupted") and "requestId" not in frame:
            assert self.told.setdefault(frame["cid"], kind) == kind, f"{frame} after {self.told[frame['cid']]}"
        elif kind == "tool_permission_request":
            self._grant(frame["requestId"])

    def _on_welcome(self, frame: dict[str, Any]) -> None:
        self._welcomes += 1
        place = Position(frame["epoch"], frame["offset"])
        recovered = frame.get("recovered")
        self.reached[f"recovered:{recovered}"] += 1
        if self._welcomes == 1:
            assert (recovered is None) == (self._asked is None), f"asked for {self._asked}, got {frame}"
            assert recovered is not True or place == self._asked, f"asked for {self._asked}, got {frame}"
        elif recovered is None:
            assert self.place is not None
            assert place.epoch != self.place.epoch, "the same process again, and nothing was lost: why say so"
            assert place.offset == 0, "a new process begins at its first frame"
            before = self._truth.written.get(self.place.epoch, [])[self.place.offset :]
            unseen = [line for line in before if json.loads(line)["type"] not in OWN_TYPES]
            assert not self._shown or not unseen, f"{self.name} was not told that it missed {unseen}"
            self.reached["new epoch"] += 1
        self.place, self._shown = place, False
        for record in frame.get("open", []):
            self._grant(record["content"]["requestId"])

    def _on_output(self, frame: dict[str, Any]) -> None:
        assert self.place is not None
        written = self._truth.written[self.place.epoch]
        offset = self.place.offset + 1
        while json.loads(written[offset - 1])["type"] in OWN_TYPES:
            offset += 1
        assert frame["_offset"] == offset, f"{self.name} at {self.place} got {frame}"
        shown = {name: value for name, value in frame.items() if name not in ("_offset", "messageId", "seq")}
        assert shown == json.loads(written[offset - 1])
        self.place, self._shown = Position(self.place.epoch, offset), True

    def _on_ack(self, frame: dict[str, Any]) -> None:
        sent = self.sent.get(frame["cid"])
        if sent is None:
            self.settled_grants[self.granted.pop(frame["cid"], "again")] += 1
            return
        assert sent.seq in (None, frame["seq"]), f"{frame}, and before that seq {sent.seq}"
        sent.seq = frame["seq"]

    def _on_nack(self, frame: dict[str, Any]) -> None:
        self.reached[frame["reason"]] += 1
        sent = self.sent.get(frame["cid"])
        if sent is None:
            assert frame["reason"] in ("already_answered", "unknown_request", *UNDECIDED), frame
            if frame["reason"] not in UNDECIDED:
                self.granted.pop(frame["cid"], None)
            return
        if frame["reason"] in UNDECIDED and sent.times > 1:
            return
        assert sent.seq is None, f"{frame}, and before that seq {sent.seq}"
        sent.refused = frame["reason"]

    def _grant(self, request: str) -> None:
        cid = f"{self.name}-grant-{request}"
        self.granted[cid] = request
        if self.tab is not None:
            self.tab.send("permission_response", cid=cid, requestId=request, allow=True)


class SlowProvider(MemoryProvider):
    """Sandboxes that take their time, now and then."""

    def __init__(self, script: Script, rng: Random) -> None:
        super().__init__(script)
        self._rng = rng
        self._slow = rng.random() < 0.5

    async def _wait(self) -> None:
        if self._slow:
            await asyncio.sleep(self._rng.choice([0.0, 0.0, 0.002, 0.1, 2.0]) * self._rng.random())

    async def start(self, spec: SandboxSpec) -> None:
        await self._wait()
        await super().start(spec)
        await self._wait()

    async def connect(self, session_id: str, events: LinkEvents, after: Position | None) -> Link:
        await self._wait()
        link = await super().connect(session_id, events, after)
        await self._wait()
        return link

    async def running(self) -> list[str]:
        await self._wait()
        return await super().running()

    async def stop(self, session_id: str) -> None:
        await self._wait()
        await super().stop(session_id)


class Simulation:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.truths: dict[str, Truth] = {}
        self.world = World(self._script, limits=LIMITS, seed=seed)
        self.world.provider = self.provider = SlowProvider(self._script, self.rng)
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
            "reply lost": (1, self._reply_lost),
            "sleep": (0.7, lambda: self._ask("sleep")),
            "pause": (0.4, lambda: self._ask("pause")),
            "resume": (1, lambda: self._ask("resume")),
            "wake": (1, lambda: self._ask("wake")),
            "abort": (0.7, self._abort),
            "close": (0.5, self._close),
            "start": (0.5, self._start),
            "start fails": (0.7, self._start_fails),
            "link refused": (0.5, self._link_refused),
            "slow tab": (0.7, self._slow_tab),
        }
        calm = self.rng.random()
        self._deeds = {name: deed for name, deed in deeds.items() if deed[0] > 2 or self.rng.random() > calm * 0.8}
        self.trace: list[str] = []

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
            await self._check()
        for person in self.people:
            self.reached += person.reached

    async def _pass_time(self) -> None:
        kind = self.rng.random()
        if kind < 0.4:
            for _ in range(self.rng.randint(0, 6)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self.rng.choice([0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 15.0]) * self.rng.random() * 2)

    # -- what happens -------------------------------------------------------------------------------------------------

    def _someone(self) -> Person:
        return self.rng.choice(self.people)

    def _somewhere(self) -> str:
        return self.rng.choice(list(self.truths))

    def _later(self, least: float, most: float, deed: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self.rng.uniform(least, most), deed)

    def _say(self) -> None:
        person = self._someone()
        deed = self.rng.choices(["-", "ask", "crash", "forge", "big"], [8, 2, 0.6, 0.3, 0.2])[0]
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
        if sandbox := self.world.provider.sandboxes.get(self._somewhere()):
            sandbox.lose_link()

    def _kill_bridge(self) -> None:
        if (sandbox := self.world.provider.sandboxes.get(self._somewhere())) and sandbox.alive:
            sandbox.crash()

    def _forget(self) -> None:
        if (sandbox := self.world.provider.sandboxes.get(self._somewhere())) and sandbox.alive:
            sandbox.crash()
            sandbox.forget_taken()

    def _kill_agent(self) -> None:
        if (sandbox := self.world.provider.sandboxes.get(self._somewhere())) and sandbox.agent:
            sandbox.agent.exit(None, "SIGKILL")

    def _cut_while_taking(self) -> None:
        if (sandbox := self.world.provider.sandboxes.get(self._somewhere())) and sandbox.alive:
            # A bridge that only loses its link still hands over what it noted.
            whats: list[Literal["link", "agent", "bridge"]] = ["agent", "bridge"]
            sandbox.cut_at = (sandbox.taken + self.rng.randint(1, 3), self.rng.choice(whats))

    def _hang(self) -> None:
        if (sandbox := self.world.provider.sandboxes.get(self._somewhere())) and sandbox.agent:
            sandbox.agent.hang()

    def _read_on(self) -> None:
        for sandbox in self.world.provider.sandboxes.values():
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

    def _reply_lost(self) -> None:
        self.world.store.faults[self.world.store.calls + self.rng.randint(1, 3)] = Fault.LOST_REPLY

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
        self.world.provider.start_failures.append("no room")

    def _link_refused(self) -> None:
        def again() -> None:
            self.world.provider.link_problem = None

        self.world.provider.link_problem = "not now"
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
        self.world.provider.link_problem = None
        self.world.provider.start_failures.clear()
        for sandbox in self.world.provider.sandboxes.values():
            sandbox.cut_at = None

    async def _settle(self) -> None:
        await self._mend()
        for name in self.truths:
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

    async def _check(self) -> None:
        for name, truth in self.truths.items():
            people = [person for person in self.people if person.session_id == name]
            await self._check_session(name, truth, people)

    async def _check_session(self, name: str, truth: Truth, people: list[Person]) -> None:
        history = await self.world.history(name)
        assert [record["seq"] for record in history] == list(range(1, len(history) + 1)), "seq has no holes"
        cids = Counter(record["cid"] for record in history)
        assert all(count == 1 for count in cids.values()), "each cid is stored once"
        by_cid = {record["cid"]: record for record in history}
        assert not [record for record in history if record["type"] == "duplicate"], "nothing was numbered twice"
        for person in people:
            self._check_sender(person, by_cid)
            self._check_viewer(name, truth, person)
        self._check_agent(truth, history)

    def _check_sender(self, person: Person, by_cid: dict[str, Any]) -> None:
        for sent in person.sent.values():
            record = by_cid.get(sent.cid)
            if sent.seq is not None:
                assert record, f"{sent} was acked and is lost"
                assert (record["seq"], record["content"]) == (sent.seq, sent.text)
                if told := person.told.get(sent.cid):
                    assert record["status"] == told, f"{sent} was told {told}, history says {record['status']}"
            elif sent.refused is not None:
                assert record is None or sent.times > 1, f"{sent} was refused and stored"
            else:
                assert sent.times == 0, f"{sent} was never answered"
        order = [sent.seq for sent in person.sent.values() if sent.seq and sent.cid not in person.lost_nacks]
        assert order == sorted(order), f"{person.name} sent in another order than {order}"
        assert not person.granted, f"answers without an answer: {person.granted}"

    def _check_viewer(self, name: str, truth: Truth, person: Person) -> None:
        agent = self.world.sandbox(name).agent if name in self.world.provider.sandboxes else None
        if agent is not None:
            written = truth.written[agent.epoch]
            assert person.place == Position(agent.epoch, len(written)), f"{person.name} does not see everything"

    def _check_agent(self, truth: Truth, history: list[dict[str, Any]]) -> None:
        assert truth.received == sorted(set(truth.received)), f"the agent got {truth.received}"
        assert len(set(truth.answers)) == len(truth.answers), "a request was answered twice"
        received = set(truth.received)
        answered = {
            record["metadata"]["answers"]: record
            for record in history
            if record["role"] == "assistant" and "answers" in record["metadata"]
        }
        for record in history:
            seq, status = record["seq"], record["status"]
            self.reached[f"{record['type']} {status}"] += 1
            if record["role"] == "assistant":
                assert status in ("complete", "incomplete", "aborted", "answered", "expired"), record
                continue
            assert status in ("delivered", "interrupted", "expired"), f"{record} has no end"
            if status == "expired":
                assert seq not in received, f"{record} expired, and the agent has it"
            if status == "delivered" and record["type"] == "message":
                assert seq in received, f"{record} was never received"
                assert seq in answered, f"{record} was neither finished nor reported"
            if status == "interrupted" and record["type"] == "message":
                assert seq not in answered, f"{record} was answered and is called interrupted"
        for seq, record in answered.items():
            assert record["status"] in ("complete", "aborted")
            assert record["content"] == truth.texts[seq], f"{record} is not what the agent said"
