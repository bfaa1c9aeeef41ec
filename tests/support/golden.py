"""Recorded conversations with real agents: a core's input and its output.

A recording is a file of JSON lines. Input of the core is `["command", {"notes", "found"}]`, `["begin", frame]`,
`["down", frame]`, `["up", line]`, `["logged", line]`, `["answered", tag, status, body]`, `["woken", name]`,
`["interrupt"]` and `["over"]`. Its output follows each: `["> agent", line]`, `["> frame", frame]` and so on. A
`command` begins a new process. tests/support/record_agents.py makes them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sandbox.agents.catalogue import CORES
from sandbox.agents.core import (
    Core,
    EndProcess,
    Http,
    InterruptProcess,
    Launch,
    LogReadingCore,
    Note,
    Out,
    Past,
    ServerCore,
    ToAgent,
    ToGateway,
    UnknownFrame,
    WakeAfter,
)

GOLDEN = Path(__file__).parents[1] / "sandbox" / "agents" / "golden"
SESSION = "golden"
PACKAGES = re.compile(r'/[^\s"\\]*(?=/node_modules/)')  # where an agent lay when it was recorded: "/packages" instead
ENV = {"HOME": "/agent", "HOLDFAST_SESSION_ID": SESSION, "OPENAI_API_KEY": "good"}
HEARD = ("up", "logged", "answered")  # the agent's output
Entry = Sequence[Any]


def recordings(agent: str) -> dict[str, list[Entry]]:
    """The recordings of one agent, by case: only input and output."""
    return {path.stem: read(path) for path in sorted((GOLDEN / agent).glob("*.jsonl"))}


def read(path: Path) -> list[Entry]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def inputs(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if not entry[0].startswith(">")]


def told(out: Out) -> Iterator[Entry]:
    """A core's output in the form of a recording."""
    match out:
        case ToAgent(line):
            yield ["> agent", json.loads(line)]
        case Http(method, path, tag, body):
            yield ["> http", method, path, tag, json.loads(body or b"null")]
        case ToGateway(frames):
            yield from (["> frame", json.loads(frame)] for frame in frames)
        case Note(members):
            yield ["> note", dict(members)]
        case WakeAfter(name, seconds):
            yield ["> wake", name, seconds]
        case UnknownFrame(kind):
            yield ["> unknown", kind]
        case InterruptProcess():
            yield ["> interrupt"]
        case EndProcess(reason):
            yield ["> end", reason]


def line_of(entry: Entry) -> bytes:
    """A line of the agent or the gateway: an object as JSON, or a text that is none. Half a surrogate pair makes it a
    line that is no UTF-8."""
    said = entry[-1]
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return text.encode(errors="surrogatepass")


def put(core: Core, entry: Entry) -> Sequence[Out]:
    """Give a core the recorded input."""
    match entry[0]:
        case "begin":
            return core.begin(None if entry[1] is None else line_of(entry))
        case "down":
            return core.down(line_of(entry))
        case "up":
            return core.up([line_of(entry)])
        case "logged":
            assert isinstance(core, LogReadingCore)
            return core.logged([line_of(entry)])
        case "answered":
            assert isinstance(core, ServerCore)
            return core.answered(entry[1], entry[2], line_of(entry))
        case "woken":
            return core.woken(entry[1])
        case "interrupt":
            return core.interrupt()
    return core.over()


def replay(agent: str, entries: Iterable[Entry], change: Callable[[Entry], Entry] | None = None) -> list[Entry]:
    """The recording that a core makes of the input. `change` is applied to each line and answer of the agent."""
    made: list[Entry] = []
    core = CORES[agent]()
    for entry in inputs(entries):
        made.append(entry)
        if entry[0] == "command":
            core = CORES[agent]()
            launch = command(core, entry)
            made.append(["> launch", list(launch.argv), [file.path for file in launch.files]])
        else:
            outs = put(core, change(entry) if change and entry[0] in HEARD else entry)
            made += [each for out in outs for each in told(out)]
    return made


def command(core: Core, entry: Entry) -> Launch:
    wanted = Launch(("agent",), ENV, directory="/workspace")
    return core.command(wanted, Past(entry[1]["notes"], entry[1]["found"]))
