"""What was recorded of a session is done again: the same state, the same effects, or the event that differs."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from gateway.session import replay as replaying
from gateway.session.conversation.open_turns import OpenTurns
from gateway.session.model.delivery_window import DeliveryWindow
from gateway.session.recording.codec import NotARecording
from gateway.session.recording.files import RecordingFiles
from gateway.session.recording.player import Player
from gateway.session.recording.recorder import SessionRecorder
from gateway.session.recording.tape import VERSION
from gateway.session.replay import Replayed, replay
from gateway.session.sandbox import driver
from gateway.session.sandbox.lifecycle import effects as do
from gateway.session.sandbox.lifecycle import events as on_
from gateway.session.sandbox.lifecycle import table
from sandbox.ports.progress import ImageChosen, ImagePull
from sandbox.protocol.values import Position
from sandbox.providers.memory.scripted import OnLine, ScriptedProcess, said
from tests.support.sessions import World
from tests.support.simulation import Simulation
from tests.support.virtual_time import VirtualTimeLoop

SOAK = os.environ.get("HOLDFAST_TEST_SOAK") == "1"
SEEDS, STEPS = (300, 120) if SOAK else (5, 40)
# What is posted by others than the session's parts, and changes nothing of the session.
STRANGERS = {"AccessWatch.begin", "RateLimitedLog._catch_up", "SessionTerminals._see_to", "SessionTerminals._park"}


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """A replay from the command line silences its process, and tests of logs may follow in this one."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def lines_of(directory: Path) -> dict[str, list[bytes]]:
    return {path.name: path.read_bytes().splitlines(keepends=True) for path in sorted(directory.iterdir())}


def replayed(lines: list[bytes]) -> Replayed:
    return asyncio.run(replay(lines))


def on_virtual_time(work: Awaitable[None]) -> None:
    async def run() -> None:
        await work

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())


async def a_busy_day(world: World) -> None:
    async with world:
        actor = await world.create()
        tab = await world.welcomed()
        for number in range(1, 4):
            tab.say(f"message {number}", f"c{number}")
            await tab.until("done", count=number)
        tab.say("message 1", "c1")  # again
        await tab.until("ack", count=4)
        await actor.change({"title": "a name"})
        await actor.sync(wait=True)
        await actor.pause()
        await actor.put_back(actor.describe()["sync"]["generation"])
        await actor.resume(None)
        world.sandbox().crash()
        raw = await world.tab(raw=True)
        raw.send_line('{"type":"message","content":"hello"}')
        await tab.until("done", count=4)
        tab.leave()
        again = await world.welcomed(after=Position(tab.position.epoch, 1))
        again.send("abort")
        await actor.sleep()
        await actor.destroy(purge=False)


async def a_day_of_cancels(world: World) -> None:
    def busy(process: ScriptedProcess) -> OnLine:
        def on_line(line: bytes) -> None:
            frame = json.loads(line)
            process.emit({"type": "agent_status", "name": "busy", "status": "retrying"})
            process.emit({"type": "tool_permission_request", "requestId": "r"})
            process.emit({"type": "request_gone", "requestId": "r"})
            process.emit({"type": "done", "answers": [frame["seq"]]})
            if said(frame) == "work":
                process.hang()

        return on_line

    world.fleet.script = busy
    async with world:
        actor = await world.create()
        await actor.pause()
        tab = await world.welcomed()
        tab.say("first", "c1")
        tab.say("second", "c2")
        await tab.until("ack", count=2)
        await actor.pending.extend(2, 900.0)
        await actor.pending.cancel(1)
        await actor.resume(None)
        await tab.until("done")
        for text in ("work", "waits", "last"):
            tab.say(text, text)
        await tab.until("ack", cid="last")
        await tab.until("receipt", cid="work")
        await actor.pending.cancel(actor.pending.listed()[0]["seq"])
        await actor.change({"mode": "plan"})
        actor.post(actor.intake.tell_mode)
        await actor.sleep()
        await actor.destroy(purge=False)


async def a_day_of_waiting_for_images(world: World) -> None:
    async with world:
        world.fleet.images = {"": ImageChosen("house:1", "id-1", "house@sha256:1")}
        world.fleet.pulls = [ImagePull("house:1", 1, 3, step, 10) for step in range(10)]
        actor = await world.create()
        tab = await world.tab()
        await tab.until("session_status", status="pulled")
        tab.say("hello")
        await tab.until("done")
        await actor.sleep()
        waking = asyncio.create_task(actor.wake())
        await world.until(lambda: actor.describe()["pull"] is not None)
        await actor.pause()
        await waking
        await actor.resume(None)
        await actor.destroy(purge=False)


def recorded(directory: Path, day: Callable[[World], Awaitable[None]] = a_busy_day) -> list[bytes]:
    directory.mkdir(exist_ok=True)
    world = World()
    world.recordings = RecordingFiles(directory)
    on_virtual_time(day(world))
    world.recordings.close()
    (lines,) = lines_of(directory).values()
    return lines


def test_what_was_cancelled_and_withdrawn_can_be_done_again(tmp_path: Path) -> None:
    again = replayed(recorded(tmp_path, a_day_of_cancels))
    assert again.difference is None, str(again.difference)
    assert again.note == ""


def test_waiting_for_an_image_can_be_done_again(tmp_path: Path) -> None:
    lines = recorded(tmp_path / "recordings", a_day_of_waiting_for_images)
    done = replayed(lines)
    assert done.difference is None, done.difference
    said = b"".join(lines)
    assert b"ImageAwaited" in said
    assert b"house@sha256:1" in said


@pytest.mark.soak
def test_what_simulated_worlds_did_can_be_done_again(tmp_path: Path) -> None:
    strangers: set[str] = set()
    for seed in range(SEEDS):
        directory = tmp_path / str(seed)
        directory.mkdir()
        simulation = Simulation(seed)
        simulation.world.recordings = files = RecordingFiles(directory)
        on_virtual_time(simulation.run(STEPS))
        files.close()
        for name, lines in lines_of(directory).items():
            done = replayed(lines)
            assert (done.events, done.difference, done.note) == (len(lines) - 1, None, ""), f"seed {seed}, {name}"
            handlers = [json.loads(line)["on"] for line in lines[1:]]
            strangers |= {on["="] for on in handlers if on["!"] != "handler"}
    assert strangers <= STRANGERS, "the replay leaves them out: it may only if they change nothing"


def test_a_day_with_everything_can_be_done_again(tmp_path: Path) -> None:
    lines = recorded(tmp_path)
    done = replayed(lines)
    assert (done.events, done.difference, done.note) == (len(lines) - 1, None, "")
    handlers = {json.loads(line)["on"]["="] for line in lines[1:]}
    assert handlers >= {
        *("life.loaded", "life.on", "life.link.dialled", "_deal", "conversation._settled", "_keep_state", "_let_go"),
        *("intake.receive", "intake.receive_line", "viewers.attach", "viewers.detach", "incoming._tell_present_status"),
        *("journal._save", "journal._save_durably", "journal._synced", "conversation.change_spec", "sharing._end_all"),
    }
    first = json.loads(lines[0])
    assert first["recording"] == VERSION
    assert {"seq", "durable", "stage"} <= json.loads(lines[0])["state"].keys()


# -- bugs that are put in ----------------------------------------------------------------------------------------------


class Bug:
    """Something is done wrong, the `nth` time it is done. `acted_at` is the event then, as `count` has it."""

    def __init__(self, count: Callable[[], int], nth: int) -> None:
        self._count = count
        self._left = nth
        self.acted_at = -1

    def acts(self) -> bool:
        self._left -= 1
        if self._left == 0:
            self.acted_at = self._count()
        return self._left == 0


def lose_a_message(patch: pytest.MonkeyPatch, bug: Bug) -> None:
    right = DeliveryWindow.next_to_send

    def wrong(window: DeliveryWindow) -> Any:
        found = list(right(window))
        return found[1:] if found and bug.acts() else found

    patch.setattr(DeliveryWindow, "next_to_send", wrong)


def forget_who_is_owed(patch: pytest.MonkeyPatch, bug: Bug) -> None:
    right = OpenTurns.done

    def wrong(turns: OpenTurns, *named: Any) -> Any:
        return None if bug.acts() else right(turns, *named)

    patch.setattr(OpenTurns, "done", wrong)


def leave_an_effect_out(patch: pytest.MonkeyPatch, bug: Bug) -> None:
    """The table says what to do when a sandbox has stopped, but for the answer."""
    right = table.on

    def wrong(life: Any, event: Any, facts: Any) -> Any:
        effects = list(right(life, event, facts))
        if isinstance(event, on_.Stopped) and bug.acts():
            return [effect for effect in effects if not isinstance(effect, do.Answer)]
        return effects

    patch.setattr(driver, "on", wrong)


def fail(patch: pytest.MonkeyPatch, bug: Bug) -> None:
    right = DeliveryWindow.taken

    def wrong(window: DeliveryWindow, seq: int) -> Any:
        if bug.acts():
            raise LookupError("put in on purpose")
        return right(window, seq)

    patch.setattr(DeliveryWindow, "taken", wrong)


BUGS = {
    "a message is not delivered": (lose_a_message, 2),
    "an answer is nobody's": (forget_who_is_owed, 2),
    "who asked is not answered": (leave_an_effect_out, 1),
    "a handler fails": (fail, 3),
}


@contextmanager
def counted(patch: pytest.MonkeyPatch, tape: type, method: str) -> Any:
    """How many events a tape has begun; the session's loading is none."""
    count, right = -1, getattr(tape, method)

    def counting(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        return right(*arguments, **named)

    with patch.context() as within:
        within.setattr(tape, method, counting)
        yield lambda: count


async def until_it_hangs(world: World) -> None:
    """The same day, as far as it gets with a bug."""
    try:
        async with asyncio.timeout(300):
            await a_busy_day(world)
    except (TimeoutError, AssertionError):
        pass


@pytest.mark.parametrize("name", BUGS)
def test_a_recording_made_with_a_bug_fails_at_the_event_where_the_bug_acted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in, nth = BUGS[name]
    with monkeypatch.context() as broken, counted(monkeypatch, SessionRecorder, "_begin") as count:
        bug = Bug(count, nth)
        put_in(broken, bug)
        recorded_with_it = first_of(tmp_path, until_it_hangs)
    difference = replayed(recorded_with_it).difference
    assert bug.acted_at > 0
    assert difference is not None
    assert difference.number == bug.acted_at, str(difference)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_that_came_since_is_found_at_the_event_where_it_acts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in, nth = BUGS[name]
    lines = recorded(tmp_path)
    with monkeypatch.context() as broken, counted(monkeypatch, Player, "_begin") as count:
        bug = Bug(count, nth)
        put_in(broken, bug)
        strangers_before = [index for index, line in enumerate(lines[1:], 1) if b'"!":"live"' in line[:80]]
        difference = replayed(lines).difference
    assert difference is not None
    left_out = sum(index <= difference.number for index in strangers_before)
    assert difference.number - left_out == bug.acted_at, str(difference)
    assert replayed(lines).difference is None, "without it all is as before"


def first_of(directory: Path, day: Callable[[World], Awaitable[None]]) -> list[bytes]:
    """The first recording: with a bug the session may be loaded again."""
    directory.mkdir(exist_ok=True)
    world = World()
    world.recordings = RecordingFiles(directory)
    on_virtual_time(day(world))
    world.recordings.close()
    return min(lines_of(directory).items())[1]


# -- files -------------------------------------------------------------------------------------------------------------


def run(path: Path) -> tuple[int, str]:
    """The command, in a process of its own."""
    command = [sys.executable, "-m", "gateway.session.replay", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return ended.returncode, ended.stdout + ended.stderr


def test_the_command_says_how_it_went_and_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = recorded(tmp_path / "day")
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(lines))
    assert run(path) == (0, f"{path}: {len(lines) - 1} events, all as recorded\n")
    said = next(index for index, line in enumerate(lines) if b"message 2" in line and b"intake.receive" in line)
    changed = [*lines[:said], lines[said].replace(b"message 2", b"message X", 1), *lines[said + 1 :]]
    path.write_bytes(b"".join(changed))
    code, told = run(path)
    assert code == 1
    assert f"event {said} differs" in told
    assert "recorded: " in told
    assert "came: " in told
    with pytest.raises(SystemExit) as helped:
        replaying.main(["--help"])
    assert helped.value.code == 0
    assert "HOLDFAST_RECORD_SESSIONS" in capsys.readouterr().out


def bad_files(lines: list[bytes]) -> dict[str, tuple[bytes, str]]:
    def first(path: str, stored: str) -> bytes:
        """With something else in the place of what was loaded."""
        entry = json.loads(lines[0])
        *outer, name = path.split(".")
        within = entry["of"]["loaded"]
        for each in outer:
            within = within[each]
        within[name] = {"!": "bytes", "=": stored}
        return json.dumps(entry).encode() + b"\n"

    def second(**members: Any) -> bytes:
        return lines[0] + json.dumps(json.loads(lines[1]) | members).encode() + b"\n"

    def handler(name: str) -> dict[str, str]:
        return {"!": "handler", "=": name}

    return {
        "empty": (b"", "it is empty"),
        "a picture": (b"\x89PNG\r\n\x1a\n" * 3, "line 1 is not JSON"),
        "json": (b'{"a":1}\n', "is not that of a recording"),
        "a list": (b"[1]\n[2]\n", "line 1 is not JSON"),
        "a newer one": (
            lines[0].replace(b'"recording":%d' % VERSION, b'"recording":7') + lines[1],
            "it is of version 7",
        ),
        "without its middle": (lines[0] + b'{"half":\n' + lines[1], "line 2 is not JSON"),
        "of nothing": (b'{"recording":%d}\n' % VERSION, "not a recorded event"),
        "lists in lists": (b"[" * 100_000 + b"\n" + lines[1], "line 1 is not JSON"),
        "lists in the lists of an event": (second(**{"with": nested(600)}), "event 1 is not a recorded event"),
        "a spec that is no JSON": (first("session.spec", "not JSON"), "event 0 is not a recorded event"),
        "a spec that is a list": (first("session.spec", "[1]"), "event 0 is not a recorded event"),
        "a checkpoint of another shape": (first("checkpoint", "[1]"), "event 0 is not a recorded event"),
        "a time that is none": (second(at="noon"), "event 1 is not a recorded event"),
        "calls that are none": (second(then={"a": 1}), "the calls of an event are no list"),
        "a result that is none": (
            second(then=[each | {"gets": {"!": "Popen", "=": "id"}} for each in json.loads(lines[1])["then"]]),
            "there is no such value",
        ),
        "a state that is none": (second(state=[1]), "event 1 is not a recorded event"),
        "half of a character": (second(**{"with": [{"!": "bytes", "=": "\ud800"}]}), "there is no such value"),
        "a handler that is none": (second(on=handler("host.spawn.__globals__")), "there is no such value"),
        "a handler that is to be awaited": (second(on=handler("run"), then=[], state={}), "run is no handler"),
        "a handler with arguments that is to be awaited": (second(on=handler("destroy")), "destroy is no handler"),
        "a class that is none": (second(**{"with": [{"!": "Popen", "=": "id"}]}), "there is no such value"),
    }


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


def test_what_is_no_recording_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = recorded(tmp_path / "day")
    for name, (content, reason) in bad_files(lines).items():
        path = tmp_path / "bad"
        path.write_bytes(content)
        assert replaying.main([str(path)]) == 2, name
        told = capsys.readouterr().err
        assert told.startswith(f"{path}: cannot be replayed: "), name
        assert told.count("\n") == 1, name
        assert reason in told, name
    assert replaying.main([str(tmp_path / "absent")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_last_line_that_is_torn_is_left_out(tmp_path: Path) -> None:
    lines = recorded(tmp_path)
    done = replayed([*lines[:10], lines[10][:-9]])
    assert (done.events, done.difference) == (9, None)
    assert "torn" in done.note
    for torn in (lines[0][:100], lines[0][:-1]):
        with pytest.raises(NotARecording):
            replayed([torn])


def test_a_recording_that_was_stopped_is_replayed_as_far_as_it_goes(tmp_path: Path) -> None:
    lines = recorded(tmp_path)
    done = replayed([*lines[:10], b'{"stopped":"the disk is full"}\n'])
    assert (done.events, done.difference, done.note) == (9, None, "the disk is full")
