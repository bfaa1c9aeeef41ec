"""One message to an agent in a sandbox of its own, and the answer: the bridge's frames, without a gateway."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.agents.launch import AgentLaunch
from gateway.agents.trial.model import TrialModel
from gateway.agents.trial.surroundings import TrialSurroundings
from sandbox.ports.fleet import Fleet, SandboxSpec
from sandbox.ports.link import Link, LinkRefused
from sandbox.ports.sandbox import SandboxFailed
from sandbox.protocol.values import AgentExit, Hello
from sandbox.providers.bridge_config import EGRESS_PORT

SESSION = "trial"
SECONDS = 120.0


class TrialFailed(Exception):
    """The agent did not answer. The text says what came instead."""


def address_inside(fleet: Fleet, model: TrialModel) -> str:
    """Where a sandbox of the fleet finds the model. One with a loopback of its own finds it there, at the port of its
    way out: nothing else is reached."""
    return f"http://127.0.0.1:{EGRESS_PORT}" if fleet.level == "contained" else model.address


async def one_turn(
    fleet: Fleet,
    data_dir: Path,
    launch: AgentLaunch,
    around: TrialSurroundings,
    model: TrialModel,
    *,
    seconds: float = SECONDS,
) -> str:
    """Return the text of the agent's answer to a greeting; `data_dir` is the open fleet's. Raises TrialFailed."""
    _put_files(data_dir / "sandboxes" / SESSION / "kept" / "agent", around)
    spec = SandboxSpec(
        SESSION,
        1,
        launch.argv,
        env=around.env,
        core=launch.core,
        agent_env=launch.env,
        agent_libc=launch.libc,
    )
    sandbox = fleet.sandbox(SESSION)
    try:
        async with asyncio.timeout(seconds):
            await fleet.start(spec)
            listener = await sandbox.egress()
            async with contextlib.nullcontext() if listener is None else model.serve_at(listener):
                heard = _Heard()
                link = await sandbox.connect(heard, None)
                try:
                    return await heard.turn(link)
                finally:
                    link.close()
    except TimeoutError as error:
        log = (await sandbox.logs(limit=2000)).decode(errors="replace").strip()
        raise TrialFailed(f"no answer within {seconds:g} s" + (f". Its log ends: {log}" if log else "")) from error
    except (SandboxFailed, LinkRefused) as error:
        raise TrialFailed(str(error)) from error
    finally:
        await sandbox.destroy()


def _put_files(home: Path, around: TrialSurroundings) -> None:
    home.mkdir(mode=0o700, parents=True)
    for name, content in around.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(content)


class _Heard:
    """Implements sandbox.ports.link.LinkEvents for one turn."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._over: asyncio.Future[str] = loop.create_future()
        self._texts: list[str] = []
        self._errors: list[str] = []
        self._problems: list[str] = []  # of a running process; its exit carries the better reason

    async def turn(self, link: Link) -> str:
        link.start(None)
        await self._ready
        frame = {"seq": 1, "type": "message", "cid": secrets.token_hex(8), "content": "Hello"}
        link.deliver(1, json.dumps(frame).encode())
        return await self._over

    def _end(self, problem: str) -> None:
        self._begin()
        if not self._over.done():
            self._over.set_exception(TrialFailed(problem))

    def _begin(self) -> None:
        if not self._ready.done():
            self._ready.set_result(None)

    def _frame(self, frame: dict[str, Any]) -> None:
        match frame:
            case {"type": "sdk_message", "message": {"message": {"content": [*blocks]}}}:
                self._texts += [block["text"] for block in blocks if block.get("type") == "text"]
            case {"type": "error", "error": str(error)}:
                self._errors.append(error)
            case {"type": "done"} if not self._over.done():
                if self._errors:
                    return self._end("; ".join(self._errors))
                self._over.set_result("\n".join(self._texts))

    def on_hello(self, hello: Hello) -> None: ...
    def on_epoch(self, epoch: str, base: int) -> None:
        self._begin()

    def on_frames(self, epoch: str, first: int, lines: Sequence[bytes]) -> None:
        for line in lines:
            try:
                frame = json.loads(line)
            except ValueError:
                continue
            if isinstance(frame, dict):
                self._frame(frame)

    def on_exit(self, exit: AgentExit) -> None:
        self._end("; ".join([*self._errors, *self._problems, f"the agent ended: {exit.reason}"]))

    def on_taken(self, seq: int) -> None: ...
    def on_recalled(self, seq: int) -> None: ...
    def on_problem(self, reason: str) -> None:
        if self._ready.done():
            self._problems.append(reason)
        else:
            self._end(reason)

    def on_unknown(self, core: str, counts: Mapping[str, int]) -> None: ...
    def on_changed(self) -> None: ...
    def on_lost(self, reason: str) -> None:
        self._end(f"its bridge was lost: {reason}")
