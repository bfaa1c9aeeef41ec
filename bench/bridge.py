"""The cost of a chat message in the gateway and in the session's own bridge, with real sandboxes.

Each session has a real local sandbox (trusted), its bridge, and an agent that answers at once. The peer is the same
gateway with the barest program that does a bridge's job (bench/bare_bridge.py). The two take turns in slices. CPU
counts all threads of the gateway and all bridges; agents do not count.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import jwt

from bench.contenders import SECRET
from bench.figures import Figure
from bench.load import Crowd, LoadFailed, Target, handshake
from bench.processes import LOAD, REPOSITORY, UNDER_TEST, WIDE_LIMITS, Program, cpu_seconds, pin
from bench.rounds import OURS, Measure, take_turns

PEER = "barest bridge"
KINDS = {OURS: "real", PEER: "bare"}  # as bench/bridge_gateway.py calls them
AGENT = f"{sys.executable} -I -S {REPOSITORY / 'bench' / 'instant_agent.py'}"
DEPTHS = (1, 4)
OPEN_AT_ONCE = 4  # starting a sandbox takes a fraction of a second of CPU


async def run(*, quick: bool) -> list[Figure]:
    sessions, rounds = (8, 4) if quick else (16, 16)
    with TemporaryDirectory(prefix="holdfast-bench-") as name:
        return await cost(Path(name), sessions, rounds=rounds, seconds=0.5, rng=Random())


async def cost(directory: Path, sessions: int, *, rounds: int, seconds: float, rng: Random) -> list[Figure]:
    async with AsyncExitStack() as open_parts:
        gateways: dict[str, BridgedGateway] = {}
        crowds: dict[str, Crowd] = {}
        for name, kind in KINDS.items():
            gateways[name] = open_parts.enter_context(bridged_gateway(kind, directory))
            crowd = Crowd(gateways[name].target, sessions, at_once=OPEN_AT_ONCE)
            crowds[name] = await open_parts.enter_async_context(crowd)
            gateways[name].find_bridges(sessions)

        def slices(name: str, depth: int) -> Measure:
            async def measure() -> Mapping[str, float]:
                gateway = gateways[name]
                bridges: list[float] = []

                def look() -> float:
                    bridges.append(cpu_seconds(*gateway.bridges))
                    return gateway.program.cpu_seconds()

                count, of_gateway = await crowds[name].in_turns(depth, seconds, look)
                of_bridges = bridges[1] - bridges[0]
                return {
                    f"CPU of a bridge per message, {sessions} sessions, {depth} in flight": of_bridges / count * 1e6,
                    f"CPU of gateway and bridge, {depth} in flight": (of_gateway + of_bridges) / count * 1e6,
                }

            return measure

        found = await take_turns(rounds, [{name: slices(name, depth) for name in crowds} for depth in DEPTHS], rng)
    return [found.figure(step, PEER, "us", less_is_better=True) for step in sorted(found.steps())]


class BridgedGateway:
    """A gateway with its bridges."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        self.bridges: list[int] = []

    def find_bridges(self, expected: int) -> None:
        """Find the bridges, which are the gateway's children. Agents are the bridges' children; they are moved to the
        core of the load."""
        self.bridges = _children(self.program.pid)
        if len(self.bridges) != expected:
            raise LoadFailed(f"{len(self.bridges)} bridges run for {expected} sessions")
        for bridge in self.bridges:
            for agent in _children(bridge):
                pin(agent, LOAD)


def _children(pid: int) -> list[int]:
    """The children of all threads of this process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text().split()]


@contextmanager
def bridged_gateway(kind: str, directory: Path) -> Iterator[BridgedGateway]:
    env = {
        "HOLDFAST_DATA_DIR": str(directory / kind),
        "HOLDFAST_PORT": "0",
        "HOLDFAST_JWT_SECRET": SECRET,
        "HOLDFAST_CREATE_ON_ATTACH": "1",
        "HOLDFAST_LOCAL_LEVEL": "trusted",
        "HOLDFAST_AGENT": AGENT,
        **WIDE_LIMITS,
    }
    claims = {"userId": "u", "email": "u@example.com", "exp": time.time() + 3600}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    with Program("bridge_gateway", kind, core=UNDER_TEST, log=directory / f"{kind}.log", env=env) as program:
        ask = Target(program.port, lambda number: handshake(f"/ws/v2?sessionId=s{number}", token))
        yield BridgedGateway(program, ask)
