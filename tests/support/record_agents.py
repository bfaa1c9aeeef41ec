"""Records conversations with real agents over the fake model, as tests/support/golden.py describes them.

`python -m tests.support.record_agents AGENT PROGRAM [CASE...]`: PROGRAM is the agent itself, perhaps with the program
that runs it before it; AGENT may end in `@` and a version, for recordings of that one besides. What is particular to a
run (ids, times, paths) is replaced, so that a second recording differs only where the agent does. Codex wants no home
below /tmp.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import (
    Core,
    HomeFile,
    Http,
    HttpServer,
    Launch,
    LogReadingCore,
    Note,
    Out,
    Past,
    ServerCore,
    ToAgent,
    ToGateway,
    WakeAfter,
)
from sandbox.bridge.agent import home
from sandbox.bridge.agent.http_reach import HttpReach
from tests.support.fake_model.serving import fake_model
from tests.support.fake_model.settings import opencode_config
from tests.support.golden import GOLDEN, PACKAGES, SESSION, replay

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIMES = re.compile(r'("\w*(?:ms|Ms|At|timestamp)": )(?:[0-9.]+|"[0-9TZ:.+-]+")')
LOGGED_AT = re.compile(r"\[20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z\]")
PASSWORD = "of-the-recording"
DESCRIPTIONS = {  # long, of no use
    "control_response", "system", "thread/started", "thread/settings/updated", "agent_end", "turn_end", "message_start",
}  # fmt: skip
# Of opencode, which has times and names of its own everywhere, and says much of itself.
ITS_TIMES = re.compile(r'("(?:created|updated|completed|start|end|next|time)": )[0-9]{12,}')
ITS_NAMES = re.compile(r"(ses|msg|prt|evt|per|que|err)_[0-9A-Za-z]{6,}")
ITS_WORDS = re.compile(r'("slug": |New session - )("?)[0-9A-Za-z:.-]+')
OF_ITSELF = re.compile(r"(plugin|catalog|reference|integration)\..*|server\.heartbeat|session\.(created|updated|diff)")
BULK = {"modelUsage", "subagent_stats", "permission_denials"}


class Live:
    """A real agent behind a core, without a bridge: everything that passes is written down."""

    def __init__(self, agent: str, program: str, place: Path, model: str) -> None:
        self.agent = agent
        self.entries: list[list[Any]] = []
        self.keep: set[str] = set()  # ids that are ours: they are the same in each run
        self._program = program
        self._home, self._work = place / "home", place / "work"
        self._model = model
        self._notes: dict[str, str] = {}
        self._frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._seq = 0
        self._wakes: dict[str, asyncio.TimerHandle] = {}
        self._waiting: list[dict[str, Any]] = []
        self.key = "good"
        self._home.mkdir()
        self._work.mkdir()

    @property
    def _env(self) -> Mapping[str, str]:
        keys = {
            "ANTHROPIC_BASE_URL": self._model,
            "ANTHROPIC_API_KEY": self.key,
            "OPENAI_BASE_URL": f"{self._model}/v1",
            "OPENAI_API_KEY": self.key,
            "GOOGLE_GEMINI_BASE_URL": self._model,
            "GEMINI_API_KEY": self.key,
            "GEMINI_CLI_NO_RELAUNCH": "true",
            "GEMINI_DEBUG_LOG_FILE": "/dev/stderr",
        }
        quiet = {"DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        retries = {"CLAUDE_CODE_MAX_RETRIES": "2"}
        path = {"PATH": os.environ["PATH"], "HOME": str(self._home), "HOLDFAST_SESSION_ID": SESSION}
        return {
            **path,
            **keys,
            **quiet,
            **retries,
            **(_opencode(self._model, self.key) if self.agent == "opencode" else {}),
        }

    async def start(self, start: dict[str, Any] | None = None) -> None:
        if self.agent == "pi":
            self._put_models()
        if self.agent == "acp":  # Gemini
            settings = {
                "security": {"auth": {"selectedType": "gemini-api-key"}},
                "telemetry": {"enabled": False},
                "model": {"name": "gemini-2.5-flash"},  # left to itself it asks one model which to ask
            }
            home.write(self._home, HomeFile(".gemini/settings.json", json.dumps(settings).encode()))
        if self.agent == "codex":  # of a model that it knows it has tools of other kinds
            start = {"type": "start", "model": "m1", **(start or {})}
        self._core: Core = CORES[self.agent]()
        wanted = Launch(tuple(self._program.split()), self._env, directory=str(self._work))
        found = home.found(self._home, self._core.traces(wanted, self._notes))
        launch = self._core.command(wanted, Past(dict(self._notes), found))
        self.keep |= set(UUID.findall(" ".join(launch.argv)))
        self.entries.append(["command", {"notes": dict(self._notes), "found": list(found)}])
        for file in launch.files:
            home.write(self._home, file)
        for move in launch.moves:
            home.move(self._home, move)
        pipe = asyncio.subprocess.PIPE
        secret = {launch.server.password_in: PASSWORD} if launch.server else {}
        self._process = await asyncio.create_subprocess_exec(
            *launch.argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self._work,
            env={**launch.env, **secret}, limit=1 << 26, start_new_session=True,
        )  # fmt: skip
        self._reach = self._reach_by_http(launch.server) if launch.server else None
        self._perform(["begin", start], self._core.begin(None if start is None else json.dumps(start).encode()))
        self._reading = asyncio.create_task(self._read(), name="reading")
        self._reading_log = asyncio.create_task(self._read_log(), name="reading the log")

    def _reach_by_http(self, server: HttpServer) -> HttpReach:
        core = self._core
        assert isinstance(core, ServerCore)

        def on_events(lines: Sequence[bytes]) -> None:
            for said in lines:
                outs, event = core.up([said]), json.loads(said)
                if outs or not OF_ITSELF.fullmatch(event["type"]):
                    self._perform(["up", event], outs)

        def on_answer(tag: str, status: int, body: bytes) -> None:
            self._perform(["answered", tag, status, json.loads(body or b"null")], core.answered(tag, status, body))

        def unheard(*_: str) -> None: ...

        return HttpReach(server, PASSWORD, on_events=on_events, on_answer=on_answer, on_left_out=unheard,
                         on_failed=unheard, on_done=unheard)  # fmt: skip

    def _put_models(self) -> None:
        models = [{"id": "m1", "contextWindow": 200_000, "maxTokens": 8000}]
        fake = {"baseUrl": f"{self._model}/v1", "api": "openai-responses", "apiKey": self.key, "models": models}
        settings = {"defaultProvider": "fake", "defaultModel": "m1"}
        for name, content in (("models", {"providers": {"fake": fake}}), ("settings", settings)):
            home.write(self._home, HomeFile(f".pi/{name}.json", json.dumps(content).encode()))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = line.rstrip(b"\n")
            if self._reach is not None:
                self._reach.said(said)
                continue
            with contextlib.suppress(ValueError):
                self._perform(["up", json.loads(said)], self._core.up([said]))
                continue
            self._perform(["up", said.decode(errors="replace")], self._core.up([said]))
        self._perform(["over"], self._core.over())

    async def _read_log(self) -> None:
        """Only what says something to the core is written down."""
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if isinstance(self._core, LogReadingCore) and (outs := self._core.logged([line.rstrip(b"\n")])):
                self._perform(["logged", line.decode(errors="replace").rstrip("\n")], outs)

    def _perform(self, entry: list[Any], outs: Any) -> None:
        self.entries.append(entry)
        out: Out
        for out in outs:
            match out:
                case ToAgent(line):
                    if b'"type":"user"' in line:
                        self.keep |= set(UUID.findall(line.decode()))
                    assert self._process.stdin is not None
                    self._process.stdin.write(line + b"\n")
                case Http() if self._reach is not None:
                    self._reach.ask(out)
                case ToGateway(frames):
                    for frame in frames:
                        self._frames.put_nowait(json.loads(frame))
                case Note(members):
                    kept = {**self._notes, **members}
                    self._notes = {name: text for name, text in kept.items() if text is not None}
                case WakeAfter(name, seconds):
                    if name in self._wakes:
                        self._wakes.pop(name).cancel()
                    if seconds is not None:
                        loop = asyncio.get_running_loop()
                        self._wakes[name] = loop.call_later(seconds, self._wake, name)

        if self._waiting and self._core.ready:
            first = self._waiting.pop(0)
            self._perform(["down", first], self._core.down(json.dumps(first).encode()))

    def _wake(self, name: str) -> None:
        self._perform(["woken", name], self._core.woken(name))

    def down(self, kind: str, **members: Any) -> None:
        self._seq += 1
        frame = {"seq": self._seq, "type": kind, "cid": f"c{self._seq}", **members}
        said = json.dumps(frame).encode()
        if self._core.waits(said) and not self._core.ready:
            self._waiting.append(frame)
        else:
            self._perform(["down", frame], self._core.down(said))

    def say(self, content: str, **members: Any) -> None:
        self.down("message", content=content, **members)

    async def frame(self, kind: str) -> dict[str, Any]:
        """The next frame of this type."""
        async with asyncio.timeout(90):
            while (frame := await self._frames.get())["type"] != kind:
                pass
        return frame

    async def turn(self, content: str) -> None:
        self.say(content)
        await self.frame("done")

    async def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._reach is not None:
            self._reach.end(1.0)
        await self._reading
        await self._reading_log
        for timer in self._wakes.values():
            timer.cancel()

    def normalised(self) -> list[list[Any]]:
        whole = "\n".join(json.dumps(_trimmed(entry), ensure_ascii=False) for entry in self.entries)
        whole = whole.replace(str(self._home), "/agent").replace(str(self._work), "/workspace")
        whole = whole.replace(str(self._work).removeprefix("/"), "workspace")
        whole = PACKAGES.sub("/packages", whole)
        whole = TIMES.sub(r"\g<1>0", whole.replace(self._model.removeprefix("http://"), "model"))
        whole = LOGGED_AT.sub("[1970-01-01T00:00:00.000Z]", whole)
        if self.agent == "opencode":
            whole = ITS_WORDS.sub(r"\1\2of-its-own", ITS_TIMES.sub(r"\g<1>0", whole))
            short: dict[str, str] = {}
            for found in ITS_NAMES.finditer(whole):
                short.setdefault(found[0], f"{found[1]}_{len(short):06}")
            whole = ITS_NAMES.sub(lambda found: short[found[0]], whole)
        names: dict[str, str] = {}
        for name in UUID.findall(whole):
            if name not in self.keep or self.agent == "codex":
                names.setdefault(name, f"00000000-0000-4000-8000-{len(names):012}")
        for name, number in names.items():
            whole = whole.replace(name, number)
        return [json.loads(line) for line in whole.split("\n")]


def _opencode(model: str, key: str) -> Mapping[str, str]:
    config = json.dumps(opencode_config(model, key))
    return {"OPENCODE_CONFIG_CONTENT": config, "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _trimmed(entry: list[Any]) -> list[Any]:
    if entry[0] == "up" and isinstance(entry[1], dict):
        entry = ["up", {name: each for name, each in entry[1].items() if name not in BULK}]
        said = entry[1]
        is_description = said.get("type", said.get("method")) in DESCRIPTIONS
        if is_description or (isinstance(said.get("result"), dict) and "thread" in said["result"]):
            return ["up", _short(said)]
    return entry


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(each) for name, each in list(value.items())[:16]}
    if isinstance(value, list):
        return [_short(each) for each in value[:1]]
    return value[:100] if isinstance(value, str) else value


async def hello(live: Live) -> None:
    await live.start({"type": "start"})
    await live.turn("@@say hello there")
    await live.turn("@@think so it is")


async def permission(live: Live) -> None:
    await live.start()
    asked = await _asked(live, "@@run touch made.txt", allow=True)
    await _asked(live, "@@run touch made.txt", allow=False, message="not now")
    if live.agent == "codex":  # it asks for no patch
        await live.turn("@@write note.txt words")
    else:
        await _asked(live, "@@write note.txt words", allow=True)
    await _asked(live, "@@run touch made.txt", allow=True, always=True)
    live.down("permission_response", requestId=asked["requestId"], allow=True)


async def _asked(live: Live, content: str, **answer: Any) -> dict[str, Any]:
    live.say(content)
    asked = await live.frame("tool_permission_request")
    live.down("permission_response", requestId=asked["requestId"], **answer)
    await live.frame("done")
    return asked


async def question(live: Live) -> None:
    await live.start()
    live.say("@@ask")
    asked = await live.frame("ask_user_question")
    live.down("ask_user_answer", requestId=asked["requestId"], answers={"Which colour?": "blue"})
    await live.frame("done")


async def abort(live: Live) -> None:
    await live.start()
    live.say("@@hang one two three ")
    await live.frame("chunk")
    live.down("abort")
    await live.frame("done")
    live.say("@@run touch never.txt")
    await live.frame("tool_permission_request")
    live.down("abort")
    await live.frame("done")
    live.down("abort")
    await live.turn("@@say still here")


async def steer(live: Live) -> None:
    await live.start()
    live.say("@@run touch steered.txt")
    asked = await live.frame("tool_permission_request")
    live.say("@@say steered", metadata={"steer": True})
    live.down("permission_response", requestId=asked["requestId"], allow=True)
    await live.frame("done")
    await live.turn("@@say next")


async def memory(live: Live) -> None:
    await live.start()
    await live.turn("@@say my name is Ada")
    live.say("@@hang at work ")
    await live.frame("chunk")
    await live.kill()
    await live.start({"type": "start", "resume": True})
    await live.turn("@@recall")


async def errors(live: Live) -> None:
    await live.start()
    for status in (500, 429):
        await live.turn(f"@@error {status}")
    await live.turn("@@say alive")
    await live.kill()
    live.key = "bad"
    await live.start()
    await live.turn("@@say x")


async def refused(live: Live) -> None:
    live.key = "bad"
    await live.start()
    await live.turn("@@say x")


async def modes(live: Live) -> None:
    await live.start({"type": "start", "mode": "edits"})
    await live.turn("@@write free.txt words")
    live.down("set_mode", mode="all")
    await live.turn("@@run touch all.txt")


CASES: dict[str, Callable[[Live], Awaitable[None]]] = {
    each.__name__: each for each in (hello, permission, question, abort, steer, memory, errors, refused, modes)
}


async def record(agent: str, version: str, program: str, case: str) -> None:
    async with fake_model() as model:
        with tempfile.TemporaryDirectory(dir=Path.home()) as place:
            live = Live(agent, program, Path(place), model)
            try:
                await CASES[case](live)
            finally:
                await live.kill()
                made = replay(agent, live.normalised())
                path = GOLDEN / agent / f"{case}{'-' if version else ''}{version}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in made))


def main() -> None:
    named, program, *cases = sys.argv[1:]
    agent, _, version = named.partition("@")
    for case in cases or CASES:
        asyncio.run(record(agent, version, program, case))


if __name__ == "__main__":
    main()
