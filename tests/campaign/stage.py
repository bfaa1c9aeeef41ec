"""Sets up a campaign: sessions with the recording agent, participants in each, and the judgement at the end."""

import asyncio
import inspect
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import children
from tests.campaign.journal import NOWHERE, Journal
from tests.campaign.participant import Participant
from tests.campaign.places import TRUSTED, Place
from tests.campaign.size import report
from tests.campaign.verdict import Evidence, Verdict, judge, unsettled
from tests.support import recording_agent
from tests.support.gateway import REPOSITORY, Gateway
from tests.support.launcher import UNTOUCHED, Launcher, Tampering
from tests.support.proxy import CuttingProxy
from tests.support.waiting import until

AGENT_SOURCE = inspect.getsource(recording_agent)


class Stage:
    def __init__(
        self, gateway: Gateway, rng: Random, seed: int = 0, journal: Journal = NOWHERE, place: Place = TRUSTED
    ) -> None:
        self.gateway = gateway
        self.place = place
        self.seed = seed
        self.rng = rng
        self.journal = journal
        self.database = str(gateway.settings.get("STORE", f"sqlite:///{gateway.data_dir}/holdfast.db"))
        self.participants: dict[str, list[Participant]] = {}
        self._bridges_killed: set[str] = set()

    async def create(
        self,
        sessions: int,
        senders: int,
        messages: int,
        *,
        pace: float,
        address: Callable[[], str] | None = None,
        same_names: bool = False,
        **habits: Any,
    ) -> None:
        """Make the sessions, with `messages` in all shared among `senders` participants in each, and wait for their
        agents. Every other agent is ten times as slow as `pace` says: faults shall meet one that waits for work and
        one that has too much. `same_names`: every session's senders use the same cids. `habits` are a Participant's."""
        for number in range(sessions):
            session_id = f"s{number}"
            await self.gateway.create(
                session_id, agent=[self.place.python, "-c", AGENT_SOURCE, str(pace * (1 + 9 * (number % 2)))]
            )
            self.participants[session_id] = []
            for sender in range(senders):
                name = f"{'s' if same_names else session_id}.{sender}"
                self.join(session_id, name, messages // (sessions * senders), address=address, **habits)
        await self.connected()

    def join(
        self, session_id: str, name: str, messages: int, *, address: Callable[[], str] | None = None, **habits: Any
    ) -> None:
        """One more participant in a session."""
        self.participants[session_id].append(
            Participant(
                name,
                session_id,
                messages,
                address=address or (lambda: self.gateway.url.replace("http", "ws", 1)),
                token=self.gateway.token,
                rng=Random(self.rng.random()),
                journal=self.journal,
                **habits,
            )
        )

    @property
    def everybody(self) -> list[Participant]:
        return [participant for session in self.participants.values() for participant in session]

    @property
    def settled(self) -> int:
        return sum(participant.settled for participant in self.everybody)

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Everybody is connected, sends and watches; leaving disconnects them."""
        async with asyncio.TaskGroup() as everybody:  # the first failure ends it for all, at once
            tasks = [everybody.create_task(each.run(), name=each.name) for each in self.everybody]
            yield
            for task in tasks:
                task.cancel()

    async def all_connected(self, times: int, *, within: float = 120) -> None:
        """Wait until every participant has connected so many times."""
        try:
            await until(lambda: all(each.connections >= times for each in self.everybody), "all are in", within=within)
        except AssertionError as late:
            late.add_note("\n".join(each.state for each in self.everybody))
            raise

    async def progress(self, count: int, *, within: float = 120) -> None:
        """Wait until so many messages are settled."""
        try:
            await until(lambda: self.settled >= count, f"{count} messages settled", within=within)
        except AssertionError as late:
            late.add_note(f"{self.settled} are\n" + "\n".join(each.state for each in self.everybody))
            raise

    async def all_settled(self, *, within: float = 120) -> None:
        """Everybody has an ack or a nack for everything, history has the final state of all of it, and everybody has
        seen the last output of the last agent process."""
        await until(lambda: all(each.finished for each in self.everybody), "everything sent is settled", within=within)
        deadline = time.monotonic() + within
        for session_id in self.participants:
            while open_ones := unsettled(await self.gateway.messages(session_id)):
                if time.monotonic() > deadline:
                    raise AssertionError(f"{session_id}: never settled: {open_ones}\n{self.gateway.log[-6000:]}")
                await asyncio.sleep(0.05)
        for session_id, watching in self.participants.items():
            if session_id in self._bridges_killed:  # output that it had not passed on died with it, if it was the last
                await self.ask(session_id, "wake")
            await self._all_have_seen(session_id, watching)

    async def _all_have_seen(self, session_id: str, watching: Sequence[Participant]) -> None:
        """A restarted agent may still write, so its output is read anew each time."""

        def missing() -> list[str]:
            said = self.evidence(session_id).said
            told = [(who, len(_run_of(who, said))) for who in watching]
            return [f"{who.state}, of {frames}" for who, frames in told if who.offset != frames]

        try:
            await until(lambda: not missing(), f"{session_id} has seen everything")
        except AssertionError as late:
            late.add_note("\n".join([*missing(), self.gateway.log[-6000:]]))
            raise

    def evidence(self, session_id: str) -> Evidence:
        return Evidence.of(SandboxHome(self.gateway.data_dir, session_id).workspace)

    async def judge(self) -> Verdict:
        verdict = Verdict()
        for session_id, participants in self.participants.items():
            history = await self.gateway.messages(session_id)
            judge(session_id, history, self.evidence(session_id), participants, verdict)
        if "session.crashed" in self.gateway.log:
            verdict.wrong.append(f"a session crashed: {self.gateway.log[-6000:]}")
        return verdict

    async def acquit(self, name: str, **more: object) -> Verdict:
        """Judge, print the line, and fail if anything is wrong."""
        verdict = await self.judge()
        report(verdict.line(name, self.seed, **more))
        assert verdict.problems == [], "\n".join([f"seed={self.seed}", *verdict.problems[:40]])
        return verdict

    async def check(self, name: str) -> "Checked":
        """The output of the checker, a separate process."""
        assert self.journal.path is not None
        case = self.journal.path.with_suffix(".case")
        case.write_text(
            json.dumps(
                {
                    "name": name,
                    "seed": self.seed,
                    "journal": str(self.journal.path),
                    "store": self.database,
                    "url": self.gateway.url if self.gateway.running else None,
                    "token": self.gateway.token(),
                    "internal_token": self.gateway.secret("internal_token"),
                }
            )
        )
        checker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.campaign.checker", str(case),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=REPOSITORY,
        )  # fmt: skip
        said, complaint = (text.decode() for text in await checker.communicate())
        assert checker.returncode in (0, 1), complaint
        line, *problems = said.splitlines()
        return Checked(line, problems)

    def enough(self) -> None:
        for each in self.everybody:
            each.enough()

    async def kill_bridge(self, session_id: str) -> None:
        """kill -9 of a bridge, once its agent is there."""
        await self.connected_one(session_id)
        while not self.kill_bridge_now(session_id):
            await self.connected_one(session_id)  # the one before it has just died
            await asyncio.sleep(0.01)

    def kill_bridge_now(self, session_id: str) -> bool:
        """kill -9 of the process that everything else in the sandbox dies with, at any moment; False if there is
        none."""
        victim = self.place.first_inside(SandboxHome(self.gateway.data_dir, session_id))
        if victim is None or not victim.alive:
            return False
        victim.signal(signal.SIGKILL)
        self._bridges_killed.add(session_id)
        return True

    def kill_agent_now(self, session_id: str) -> bool:
        """kill -9 of the agent process alone, in a sandbox whose first process is the bridge; False if there is
        none."""
        bridge = self.place.first_inside(SandboxHome(self.gateway.data_dir, session_id))
        agents = children(bridge.pid) if bridge is not None else []
        for agent in agents:
            agent.signal(signal.SIGKILL)
        return bool(agents)

    async def ask(self, session_id: str, step: str) -> None:
        """One lifecycle request of the owner; an answer that says to retry is retried."""
        deadline = time.monotonic() + 60
        async with self.gateway.http() as client:
            while True:
                answer = await client.post(f"/api/sandboxes/{session_id}/{step}", json={})
                if "try again in a moment" not in answer.text or time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.05)
        assert answer.status_code == 200, f"{step} {session_id}: {answer.text}\n{self.gateway.log[-6000:]}"

    async def connected(self, *, within: float = 60) -> None:
        """Wait until every session's agent is there."""
        for session_id in self.participants:
            await self.connected_one(session_id, within=within)

    async def connected_one(self, session_id: str, *, within: float = 60) -> None:
        async with self.gateway.http() as client:

            async def look() -> bool:
                answer = await client.get(f"/api/sandboxes/{session_id}/status")
                assert answer.status_code == 200, answer.text  # too many requests get a 429
                assert answer.json()["sandboxStatus"] == "connected", answer.text
                return True

            await until(look, lambda: f"the agent of {session_id}\n{self.gateway.log[-4000:]}", within)


@dataclass(frozen=True, slots=True)
class Checked:
    """The checker's line of counts, and its findings."""

    line: str
    problems: list[str]

    def reached(self, what: str) -> int:
        """How often the run came to such a state."""
        found = re.search(rf"[:,] {re.escape(what)} (\d+)[,;]", self.line)
        return int(found[1]) if found else 0

    def acquit(self, *states: str) -> None:
        """Print the line; fail if there is a problem, or one of `states` was never reached."""
        report(self.line)
        assert self.problems == [], "\n".join([self.line, *self.problems[:40]])
        missed = [state for state in states if not self.reached(state)]
        assert missed == [], f"never reached: {missed}: {self.line}"


@asynccontextmanager
async def staged(
    tmp_path: Path,
    seed: int,
    rng: Random,
    *,
    launcher: Launcher | None = None,
    tampering: Tampering = UNTOUCHED,
    place: Place = TRUSTED,
    **settings: object,
) -> AsyncIterator[Stage]:
    """A gateway with a stage on it, and a journal beside it."""
    settings = {"PENDING_TTL": 120, "MAX_CONNECTIONS_PER_USER": 1000, **place.settings, **settings}
    place.prepare(tmp_path / "data")
    journal = Journal(tmp_path / "journal.log")
    try:
        gateway = Gateway(tmp_path / "data", **settings)
        gateway.launcher, gateway.tampering = launcher, tampering
        async with gateway:
            yield Stage(gateway, rng, seed, journal, place)
    finally:
        journal.close()


@asynccontextmanager
async def cutting(gateway: Gateway) -> AsyncIterator[CuttingProxy]:
    """A proxy before the gateway, wherever that listens."""
    async with CuttingProxy(int(gateway.url.rsplit(":", 1)[1])) as proxy:
        yield proxy


def _run_of(who: Participant, said: dict[str, list[dict[str, object]]]) -> list[dict[str, object]]:
    """What the agent process has said that `who` watches."""
    seen = who.output.get(who.epoch, {})
    return said.get(str(next(iter(seen.values()))["run"]), []) if seen else []
