"""What a core asks of the bridge's shell besides lines and frames: a real bridge and a real agent do it."""

import json
import os
import stat
from pathlib import Path

from sandbox.bridge.agent.home import MAX_NOTES, NOTES
from sandbox.client.agent_link import BridgeLink
from sandbox.protocol.agent import MAX_LINE
from tests.sandbox.bridge.agent.test_cores import ABORT, frames, heard, kinds, message, told, turns
from tests.support.bridge import BridgeProcess, Owner
from tests.support.waiting import until


def launched(bridge: BridgeProcess) -> str:
    return (bridge.workspace / "launch").read_text()


class Session:
    """One gateway's link to a bridge, and the agent's processes one after the other."""

    def __init__(self, owner: Owner, link: BridgeLink) -> None:
        self.owner = owner
        self.link = link

    async def run(self, says: str) -> None:
        """Start the agent, and let it say this to its first message."""
        owner, before = self.owner, len(self.owner.epochs)
        self.link.start(None)
        await until(lambda: len(owner.epochs) > before)
        self.link.deliver(owner.taken + 1, message(f"{says};say said"))
        await heard(owner, "chunk")

    async def end(self) -> None:
        before = len(self.owner.exits)
        self.link.stop_agent()
        await until(lambda: len(self.owner.exits) > before)

    async def run_and_end(self, says: str) -> None:
        await self.run(says)
        await self.end()


async def attached(bridge: BridgeProcess) -> Session:
    owner = Owner()
    return Session(owner, await bridge.link(owner))


async def test_what_a_core_notes_is_in_the_agents_home_and_the_next_process_begins_with_it(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        notes = tmp_path / NOTES
        notes.parent.mkdir()
        notes.write_text('{"another": {"text": "of another core"}}')
        await (await attached(bridge)).run_and_end("note first;note second")
        assert json.loads(notes.read_text()) == {
            "another": {"text": "of another core"},
            "turns": {"text": "second"},
        }
        assert stat.S_IMODE(notes.stat().st_mode) == 0o600
        assert [path.name for path in notes.parent.iterdir()] == ["agent.json"]

        bridge.kill()  # the notes are not the bridge's: another one has them too
        bridge.start()
        session = await attached(bridge)
        await session.run_and_end("forget")
        assert told(bridge)[-2] == "hi second"
        assert launched(bridge) == repr((["--turns", "--noted"], "one"))
        await session.run_and_end("say again")
        assert told(bridge)[-2] == "hi"


async def test_notes_that_are_no_notes_are_none(tmp_path: Path) -> None:
    notes = tmp_path / NOTES
    notes.parent.mkdir()
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        for bad in ("", "[" * 10_000, "[1]", '{"turns": 1}', '{"turns": {"text": 1}}', "x" * (2 * MAX_NOTES)):
            notes.write_text(bad)
            await session.run_and_end("what of tomorrow")
            assert told(bridge)[-2] == "hi"
        notes.unlink()
        notes.symlink_to("/etc/passwd")
        await session.run_and_end("note in its place")
        assert not notes.is_symlink()
        notes.unlink()
        os.mkfifo(notes)
        await session.run_and_end("what a pipe")
        notes.unlink()
        notes.mkdir()
        await session.run_and_end("note nowhere")
        assert "agent.notes_failed" in bridge.log
        assert not session.owner.problems
        assert list(notes.parent.iterdir()) == [notes]


async def test_a_core_has_files_looked_for_and_written_before_the_start(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        await session.run_and_end("say first")
        assert launched(bridge) == repr((["--turns"], "one"))
        made = tmp_path / "made" / "file"
        assert (made.read_bytes(), stat.S_IMODE(made.stat().st_mode)) == (b"of the core", 0o600)
        (tmp_path / "marks" / "a").mkdir(parents=True)
        (tmp_path / "marks" / "b").mkdir()
        (tmp_path / "marks" / "b" / "here.jsonl").write_text("")
        await session.run_and_end("say second")
        assert launched(bridge) == repr((["--turns", "--here"], "one"))


async def test_a_core_has_files_renamed_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "marks" / "a").mkdir(parents=True)
    (tmp_path / "marks" / "a" / "old-1").write_text("kept")
    (tmp_path / "marks" / "b").symlink_to("/etc")
    (tmp_path / "marks" / "c" / "old-2" / "inside").mkdir(parents=True)
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        await session.run_and_end("say first")
        assert (tmp_path / "marks" / "a" / "renamed").read_text() == "kept"
        (tmp_path / "marks" / "a" / "old-3").write_text("another")
        await session.run_and_end("say second")
        found = {path.name: path.read_text() for path in (tmp_path / "marks" / "a").iterdir()}
        assert found == {"renamed": "kept", "old-3.aside": "another"}
        assert (tmp_path / "marks" / "c" / "old-2").is_dir()


async def test_a_file_that_cannot_be_written_is_named_and_no_agent_is_started(tmp_path: Path) -> None:
    (tmp_path / "made").write_text("no directory")
    with turns(tmp_path) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await until(lambda: owner.problems)
        assert owner.problems == ["the agent could not be started: HOME/made/file: Not a directory"]
        assert not (bridge.workspace / "launch").exists()


async def test_a_core_that_writes_files_needs_a_home(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        bridge.kill()
        bridge.config["base_env"] = {name: text for name, text in bridge.config["base_env"].items() if name != "HOME"}
        bridge.start()
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        await until(lambda: owner.problems)
        assert owner.problems == ["the agent could not be started: no HOME for its file made/file"]


async def test_a_core_is_woken_when_its_time_has_come_and_not_when_it_took_that_back(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        await session.run("wake never;sleep;wake also never;wake up")
        await heard(session.owner, "chunk", 2)
        assert [frame.get("text") for frame in frames(session.owner)] == ["said", "up"]


async def test_what_a_core_does_not_know_is_counted_by_kind_and_logged_once(tmp_path: Path) -> None:
    kinds_said = ";".join(["what new"] * 5 + [f"what {n}" for n in range(80)])
    with turns(tmp_path) as bridge:
        await (await attached(bridge)).run_and_end(kinds_said)
        entries = [json.loads(line) for line in bridge.log.splitlines()]
        logged = [entry["kind"] for entry in entries if entry["event"] == "agent.unknown"]
        assert (len(logged), logged.count("new"), logged[-1]) == (65, 1, "others")
        (counts,) = (entry["counts"] for entry in entries if entry["event"] == "agent.unknown_counts")
        assert (counts["new"], counts["7"], counts["others"]) == (5, 1, 17)


async def test_a_core_ends_a_process_that_is_of_no_use_and_says_the_last_word(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        owner, link = session.owner, session.link
        link.start(None)
        await until(lambda: owner.epochs)
        link.deliver(1, message("say said;end of no use"))  # in this order: its end may come before its next line
        exit = (await until(lambda: owner.exits))[0]
        assert exit.signal == "SIGTERM"
        assert owner.problems == ["of no use"]
        assert kinds(owner) == ["chunk", "stream_end"]
        link.start(None)
        await until(lambda: len(owner.epochs) == 2)


async def test_a_turn_that_does_not_stop_is_stopped_as_the_core_says(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        await session.run("say at work")
        owner, link = session.owner, session.link
        link.interrupt()
        exit = (await until(lambda: owner.exits))[0]
        assert (exit.signal, owner.problems) == ("SIGTERM", ["the agent did not stop"])
        link.interrupt()
        link.inject(ABORT)  # nobody is there; nothing happens


async def test_a_line_beyond_every_bound_reaches_a_core_that_asks_for_it_with_its_strings_cut(tmp_path: Path) -> None:
    script = f"""
import sys
sys.stdin.readline()
print("hello", flush=True)
sys.stdin.readline()
print('say "' + "x" * {3 * MAX_LINE} + '"', flush=True)
print("say next", flush=True)
sys.stdin.read()
"""
    with turns(tmp_path, script) as bridge:
        owner = Owner()
        link = await bridge.link(owner)
        link.start(None)
        link.deliver(1, message("go"))
        await heard(owner, "chunk", 2)
        assert [frame["text"][:3] for frame in frames(owner)] == ['"xx', "nex"]
        assert not owner.problems
