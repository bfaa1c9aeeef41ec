"""The pieces an agent is run with: lines, notes, logs, configuration."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.bridge.__main__ import take_notes
from sandbox.bridge.agent import taken
from sandbox.bridge.agent.taken import NotesInUse, TakenNotes
from sandbox.bridge.base.config import ConfigError, Limits, parse_config
from sandbox.system.child import describe_exit
from sandbox.system.log import BoundedLog


def test_notes_are_kept_within_one_boot(tmp_path: Path) -> None:
    notes = TakenNotes(tmp_path, boot_id="a-1")
    assert notes.taken == 0
    notes.take(5)
    notes.take(123456789)
    with pytest.raises(NotesInUse):
        TakenNotes(tmp_path, boot_id="a-1")
    notes.close()
    same = TakenNotes(tmp_path, boot_id="a-1")
    assert (same.taker, same.taken) == (notes.taker, 123456789)
    same.close()
    rebooted = TakenNotes(tmp_path, boot_id="b-2")
    assert rebooted.taker != notes.taker
    assert rebooted.taken == 0
    rebooted.close()
    assert (tmp_path / "taken").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\0" * 40, b"cut"])
def test_notes_that_cannot_be_read_are_new_notes(tmp_path: Path, damage: bytes) -> None:
    notes = TakenNotes(tmp_path)
    notes.take(9)
    notes.close()
    path = tmp_path / "taken"
    path.write_bytes(path.read_bytes()[:-3] if damage == b"cut" else damage)
    again = TakenNotes(tmp_path)
    assert (again.taken, again.taker == notes.taker) == (0, False)
    again.take(1)
    again.close()
    third = TakenNotes(tmp_path)
    assert (third.taken, third.taker) == (1, again.taker)
    third.close()


def test_notes_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "taken").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        TakenNotes(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_does_not_stop_the_log(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", 100)
    log.write(b"x" * 60)
    os.close(log._fd)
    log._fd = os.open("/dev/full", os.O_WRONLY)
    log.write(b"y" * 10)
    log.close()
    assert (tmp_path / "log").read_bytes() == b"x" * 60


def test_a_log_that_cannot_be_opened_stops_nobody_and_no_other_file_gets_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = BoundedLog(tmp_path / "later" / "log", 100)
    log.write(b"lost")
    (tmp_path / "later").mkdir()
    log.write(b"x" * 60)

    def refuse(*_: object) -> int:
        raise OSError("no more files")

    with monkeypatch.context() as full:
        full.setattr(os, "open", refuse)
        log.write(b"y" * 60)  # begins a new file, and cannot
        BoundedLog(tmp_path / "later" / "another", 100).close()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    log.write(b"z" * 10)
    log.close()
    assert os.pread(other, 100, 0) == b""
    os.close(other)


def test_an_exit_has_words() -> None:
    assert describe_exit(3) == (3, None, "exited with code 3")
    assert describe_exit(-15) == (None, "SIGTERM", "killed by SIGTERM")
    assert describe_exit(-63) == (None, "SIG63", "killed by SIG63")


GOOD: dict[str, Any] = {
    "session_id": "s",
    "incarnation": 2,
    "token": "t" * 16,
    "agent": ["cat"],
    "env": {"A": "1", "B": "2"},
    "base_env": {"A": "0", "C": "3"},
    "kept": "/k",
    "workspace": "/w",
    "state": "/s",
    "agent_log": "/l",
}


def test_a_configuration_is_read() -> None:
    config = parse_config(json.dumps({**GOOD, "orphan_seconds": 5, "limits": {"exec_at_once": 2}}).encode())
    assert config.environment == {"A": "1", "B": "2", "C": "3"}
    assert (config.orphan_seconds, config.exec_timeout, config.limits) == (5, 600, Limits(exec_at_once=2))
    assert "tttt" not in repr(config)
    assert "'B'" not in repr(config)


async def test_a_bridge_that_is_told_the_boot_id_does_not_ask_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken, "_BOOT_ID", tmp_path / "not-here")  # as in a sandbox without that file
    config = parse_config(json.dumps({**GOOD, "boot_id": "a-1"}).encode())
    notes = await take_notes(tmp_path, config.boot_id)
    assert b" a-1 " in (tmp_path / "taken").read_bytes()
    notes.close()
    with pytest.raises(FileNotFoundError):  # told nothing, as by an earlier gateway
        await take_notes(tmp_path, parse_config(json.dumps(GOOD).encode()).boot_id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": []},
        {"agent": "cat"},
        {"agent": [1]},
        {"token": "short"},
        {"token": 5},
        {"env": {"A": 1}},
        {"env": {"A=": "x"}},
        {"base_env": []},
        {"workspace": ""},
        {"kept": 5},
        {"hold": 1},
        {"state": "a\0b"},
        {"incarnation": "1"},
        {"incarnation": True},
        {"orphan_seconds": -1},
        {"limits": []},
        {"limits": {"unknown": 1}},
        {"limits": {"queue_lines": "many"}},
        {"surprise": 1},
        {"core": "no-such-core"},
        {"core": ["plain"]},
        {"core": None},
        {"boot_id": 5},
        {"boot_id": "a b"},
        {"boot_id": "a" * 65},
    ],
)
def test_a_wrong_configuration_is_refused(wrong: dict[str, Any]) -> None:
    parse_config(json.dumps(GOOD).encode())
    with pytest.raises(ConfigError):
        parse_config(json.dumps({**GOOD, **wrong}).encode())


def test_a_core_is_chosen_by_name_and_an_unknown_name_is_answered_with_those_there_are() -> None:
    assert parse_config(json.dumps(GOOD).encode()).core == "plain"
    assert parse_config(json.dumps({**GOOD, "core": "plain"}).encode()).core == "plain"
    with pytest.raises(ConfigError, match=r"^core: no such core of an agent; this bridge has [a-z, -]*\bplain\b"):
        parse_config(json.dumps({**GOOD, "core": "clair"}).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"[" * 100_000])
def test_what_is_no_configuration_is_refused(text: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_config(text)
