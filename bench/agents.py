"""The cost of a real agent behind Holdfast, compared with the same agent on its own pipes; and the cost of an agent's
core, compared with reading its JSON.

Claude Code and Codex, as `make agents` installs them, ask a model that costs nothing (`tests/support/fake_model`). The
peer has the agent's core and its pipes, but no bridge, gateway or store. A warm message goes to a running session. For
`asleep`, the sandbox is started first, at level `contained`; the peer starts the agent alone. Bytes are those of the
frames sent to one viewer. Adapter CPU is a core's CPU on the recorded output of its agent.
"""

import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from websockets.asyncio.client import ClientConnection

from bench.figures import Figure, Goal, compare
from bench.processes import REPOSITORY
from bench.results import NotHere
from bench.rounds import OURS, Measure, Rounds, take_turns
from gateway.agents.shelf import AgentShelf
from sandbox.agents.catalogue import CORES
from tests.agents.agents import Model
from tests.support.chat import hear, say
from tests.support.fake_model.serving import INNER, fake_model
from tests.support.gateway import Gateway
from tests.support.golden import inputs, line_of, put, recordings
from tests.support.record_agents import Live

PIPES, PARSER = "the agent on its own pipes", "json.loads of the same lines"
AGENTS = {"claude-code": "Claude Code", "codex": "Codex"}
INSTALLED = Path(os.environ.get("HOLDFAST_TEST_AGENTS") or REPOSITORY / ".agents").absolute()
ANSWER = 300_000
WARM, LONG, ABORT, ASLEEP = "message to first chunk", "300 kB answer", "abort to its end", "asleep to first chunk"
BYTES, PROCESSOR = "bytes to a viewer per byte of the answer", "adapter CPU per line"
ADDED_MS, ADDED_START_MS, ABORT_MS = 5.0, 150.0, 100.0


async def run(*, quick: bool) -> list[Figure]:
    shelf = AgentShelf(INSTALLED)
    if missing := [name for name in AGENTS if shelf.find(name) is None]:
        raise NotHere(f"{', '.join(missing)} not installed in {INSTALLED}: make agents")
    rounds, starts = (5, 1) if quick else (20, 4)
    figures: list[Figure] = []
    async with fake_model() as model:
        for name, title in AGENTS.items():
            # Codex does not accept a home below /tmp.
            with TemporaryDirectory(prefix=".holdfast-bench-", dir=Path.home()) as directory:
                found = await costs(Path(directory), INSTALLED, name, Model(model), rounds=rounds, starts=starts)
            figures += of_agent(title, found)
    return figures + [of_core(name, rounds=rounds) for name in ("claude-code", "codex", "pi", "acp")]


def of_agent(title: str, found: Rounds) -> list[Figure]:
    def beyond(step: str, added: float) -> Figure:
        allowed = [value + added for value in found.of(step, PIPES)]
        peer = f"{PIPES} + {added:g} ms"
        mine = found.of(step, OURS)
        return compare(f"{title}: {step}", peer, "ms", mine, allowed, less_is_better=True, goal=Goal(1.0))

    def beside(step: str, unit: str, goal: Goal | None = None) -> Figure:
        return found.figure(step, PIPES, unit, claim=f"{title}: {step}", less_is_better=True, goal=goal)

    aborts, sent = found.of(ABORT, OURS), found.of(BYTES, OURS)
    limit, answers = [ABORT_MS] * len(aborts), [float(ANSWER)] * len(sent)
    return [
        beyond(WARM, ADDED_MS),
        beside(WARM, "ms"),
        beside(LONG, "ms", Goal(1.1)),
        beyond(ASLEEP, ADDED_START_MS),
        beside(ABORT, "ms"),
        compare(f"{title}: {ABORT}", f"{ABORT_MS:g} ms", "ms", aborts, limit, less_is_better=True, goal=Goal(1.0)),
        compare(f"{title}: {BYTES}", "the answer", "B", sent, answers, less_is_better=True, goal=Goal(1.2)),
    ]


def of_core(name: str, *, rounds: int) -> Figure:
    """A core's CPU on all recorded output of its agent."""
    said = [inputs(entries) for entries in recordings(name).values()]
    lines = [line_of(entry) for entries in said for entry in entries if entry[0] == "up"]

    def core_seconds() -> float:
        took = 0.0
        for entries in said:
            core = CORES[name]()
            for entry in entries:
                if entry[0] == "command":
                    core = CORES[name]()
                before = time.process_time()
                put(core, entry)
                took += (time.process_time() - before) * (entry[0] == "up")
        return took

    def parser_seconds() -> float:
        before = time.process_time()
        for line in lines:
            try:
                json.loads(line)
            except ValueError:
                continue
        return time.process_time() - before

    core_seconds()
    pairs = [(core_seconds() * 1e6 / len(lines), parser_seconds() * 1e6 / len(lines)) for _ in range(rounds)]
    ours, theirs = zip(*pairs, strict=True)
    return compare(f"{name}: {PROCESSOR}", PARSER, "us", ours, theirs, less_is_better=True)


async def costs(directory: Path, agents: Path, name: str, model: Model, *, rounds: int, starts: int) -> Rounds:
    settings = {"AGENTS_DIR": agents, "LOCAL_LEVEL": "contained", "NETWORK_INNER": INNER}
    core = AgentShelf(agents).find(name)
    assert core is not None
    program = str(agents / core.name / core.version / core.program)
    async with (
        Gateway(directory / "data", **settings) as gateway,
        _piped(directory / "warm", name, program, model) as live,
    ):
        await gateway.create("warm", agent=name, network="outbound", envVars=model.variables)
        async with gateway.chat("warm") as socket:
            await hear(socket, "welcome")
            await say(socket, "start", model=model.name)
            await _asleep(gateway)  # what is started from here on has read it
            await _message(socket, "@@say ready", "done")
            live.say("@@say ready")
            await live.frame("done")
            warm: dict[str, Measure] = {OURS: lambda: _warm(socket), PIPES: lambda: _warm_piped(live)}
            long: dict[str, Measure] = {OURS: lambda: _long(socket), PIPES: lambda: _long_piped(live)}
            abort: dict[str, Measure] = {OURS: lambda: _abort(socket), PIPES: lambda: _abort_piped(live)}
            found = await take_turns(rounds, [warm, long, abort], Random())

            async def asleep() -> Mapping[str, float]:
                await _asleep(gateway)
                took = await _message(socket, "@@say awake", "chunk")
                await hear(socket, "done")
                return {ASLEEP: took}

            async def anew() -> Mapping[str, float]:
                with TemporaryDirectory(dir=directory) as fresh:
                    before = time.perf_counter()
                    async with _piped(Path(fresh) / "home", name, program, model) as started:
                        started.say("@@say awake")
                        await started.frame("chunk")
                        took = (time.perf_counter() - before) * 1e3
                        await started.frame("done")
                return {ASLEEP: took}

            return await take_turns(starts, [{OURS: asleep, PIPES: anew}], Random(), found)


@asynccontextmanager
async def _piped(place: Path, name: str, program: str, model: Model) -> AsyncIterator[Live]:
    os.mkdir(place)
    live = Live(name, program, place, model.address)
    await live.start()
    try:
        yield live
    finally:
        await live.kill()


async def _asleep(gateway: Gateway) -> None:
    async with gateway.http() as ada:
        (await ada.post("/api/sandboxes/warm/sleep")).raise_for_status()


async def _message(socket: ClientConnection, content: str, until: str) -> float:
    """Milliseconds from a message to the first frame of type `until`."""
    before = time.perf_counter()
    await say(socket, "message", content=content)
    await hear(socket, until)
    return (time.perf_counter() - before) * 1e3


async def _warm(socket: ClientConnection) -> Mapping[str, float]:
    took = await _message(socket, "@@say hello", "chunk")
    await hear(socket, "done")
    return {WARM: took}


async def _warm_piped(live: Live) -> Mapping[str, float]:
    before = time.perf_counter()
    live.say("@@say hello")
    await live.frame("chunk")
    took = (time.perf_counter() - before) * 1e3
    await live.frame("done")
    return {WARM: took}


async def _long(socket: ClientConnection) -> Mapping[str, float]:
    before, count = time.perf_counter(), 0
    await say(socket, "message", content=f"@@big {ANSWER}")
    while True:
        raw = await socket.recv()
        count += len(raw)
        if json.loads(raw)["type"] == "done":
            if count < ANSWER:
                raise RuntimeError(f"of an answer of {ANSWER} bytes there came {count}")
            return {LONG: (time.perf_counter() - before) * 1e3, BYTES: float(count)}


async def _long_piped(live: Live) -> Mapping[str, float]:
    before = time.perf_counter()
    live.say(f"@@big {ANSWER}")
    await live.frame("done")
    return {LONG: (time.perf_counter() - before) * 1e3}


async def _abort(socket: ClientConnection) -> Mapping[str, float]:
    await _message(socket, "@@hang one two", "chunk")
    before = time.perf_counter()
    await say(socket, "abort")
    await hear(socket, "done")
    return {ABORT: (time.perf_counter() - before) * 1e3}


async def _abort_piped(live: Live) -> Mapping[str, float]:
    live.say("@@hang one two")
    await live.frame("chunk")
    before = time.perf_counter()
    live.down("abort")
    await live.frame("done")
    return {ABORT: (time.perf_counter() - before) * 1e3}
