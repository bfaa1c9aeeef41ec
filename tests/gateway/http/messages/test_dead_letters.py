"""Dead letters, as operators meet them: over the API and on the command line."""

import asyncio
import base64
import json
import os
import pty
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.commands.dead_letters import brief, full, outcome_in_words
from gateway.cli.main import main
from gateway.http.messages.dead_letters import COUNTED, letters_kept, told, whole
from persistence.memory import MemoryStore
from persistence.record import Dead, DeadLetter, Duplicate, Fenced, Outcome, Record, Rejected, Session, Stored, Write
from persistence.sqlite.store import SqliteStore
from tests.support.gateway import PASSED_ON, Gateway
from tests.support.launcher import launch

AWAY = {"number", "sessionId", "seq", "cid", "role", "type", "reason", "bytes", "createdAt", "buriedAt"}
SAID = b'{"type":"message","content":"two\\nlines \\u001b[31m","metadata":{"k":1}}'


async def bury(data: Path, **sessions: int) -> None:
    """Give the store of a gateway that does not run sessions with so many dead letters each."""
    data.mkdir(mode=0o700, exist_ok=True)
    async with SqliteStore(data / "holdfast.db") as store:
        for session_id, count in sessions.items():
            await store.create(Session(session_id, "ada", 1.0))
            for seq in range(1, count + 1):
                dead = Record(session_id, seq, f"no\0text{seq}", "user", "message", SAID, 1_767_225_600.0)
                assert isinstance((await store.commit([Write(session_id, dead)]))[0], Dead)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    data = tmp_path / "data"
    await bury(data, one=3, two=20)
    async with Gateway(data) as running:
        yield running


async def get(gateway: Gateway, path: str, **params: Any) -> httpx.Response:
    async with gateway.http(gateway.internal) as service:
        return await service.get(f"/internal/dead-letters{path}", params=params)


async def holdfast(gateway: Gateway, *words: str, typed: str | None = None) -> tuple[int, str, str]:
    """Run `holdfast dead-letters ...` against it: exit code, stdout, stderr. `typed`: at a terminal, by a person."""
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env = base | {"HOLDFAST_DATA_DIR": str(gateway.data_dir)}
    keyboard, terminal = pty.openpty() if typed is not None else (-1, subprocess.DEVNULL)
    process = await launch(
        "dead-letters", *words,
        stdin=terminal, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env,
    )  # fmt: skip
    if typed is not None:
        os.write(keyboard, typed.encode())
    async with asyncio.timeout(60):
        out, errors = await process.communicate()
    if typed is not None:
        os.close(keyboard)
        os.close(terminal)
    return process.returncode or 0, out.decode(), errors.decode()


async def test_letters_are_listed_in_pages_and_shown_whole(gateway: Gateway) -> None:
    everything = (await get(gateway, "")).json()
    assert [letter["number"] for letter in everything["deadLetters"]] == list(range(1, 24))
    assert everything["next"] is None
    assert set(everything["deadLetters"][0]) == AWAY
    first = (await get(gateway, "", limit=18)).json()
    rest = (await get(gateway, "", after=first["next"])).json()
    assert [*first["deadLetters"], *rest["deadLetters"]] == everything["deadLetters"]
    one = (await get(gateway, "", sessionId="one")).json()["deadLetters"]
    assert [(letter["sessionId"], letter["seq"]) for letter in one] == [("one", 1), ("one", 2), ("one", 3)]
    shown = (await get(gateway, "/2")).json()
    assert {name: shown[name] for name in AWAY} == one[1]
    assert (shown["content"], shown["metadata"]) == ("two\nlines \x1b[31m", {"k": 1})
    assert shown["reason"]


BAD_QUESTIONS: list[tuple[str, dict[str, Any], int]] = [
    ("", {"limit": 0}, 400),
    ("", {"after": "x"}, 400),
    ("", {"sessionId": "../x"}, 400),
    ("/99", {}, 404),
    ("/x", {}, 404),
    ("/0", {}, 404),
    (f"/{'9' * 40}", {}, 404),
    ("/%F0%9F%90%9F", {}, 404),
]


async def test_a_question_that_makes_no_sense_is_refused(gateway: Gateway) -> None:
    answered = [(await get(gateway, path, **query)).status_code for path, query, _ in BAD_QUESTIONS]
    assert answered == [status for _, _, status in BAD_QUESTIONS]


async def test_only_services_see_letters(gateway: Gateway) -> None:
    for headers in ({}, gateway.bearer(), gateway.admin, gateway.relay):
        async with gateway.http(headers) as client:
            assert (await client.get("/internal/dead-letters")).status_code in (401, 403)
            assert (await client.post("/internal/dead-letters/1/retry")).status_code in (401, 403)
            assert (await client.delete("/internal/dead-letters/1")).status_code in (401, 403)
    assert len((await get(gateway, "")).json()["deadLetters"]) == 23


async def test_a_letter_is_retried_once_and_dropped_once(gateway: Gateway) -> None:
    async with gateway.http(gateway.internal) as service:
        first = await service.post("/internal/dead-letters/1/retry")
        again = await service.post("/internal/dead-letters/1/retry")
        dropped = await service.delete("/internal/dead-letters/2")
        gone = await service.delete("/internal/dead-letters/2")
    assert first.json() == {"number": 1, "outcome": "stored", "seq": 1}
    assert (again.status_code, again.json()["code"]) == (404, "unknown_letter")
    assert dropped.json() == {"number": 2, "dropped": True}
    assert gone.status_code == 404
    history = await gateway.messages("one")
    assert [(each["seq"], each["type"]) for each in history] == [(1, "message"), (2, "rejected"), (3, "rejected")]
    assert history[0]["content"] == "two\nlines \x1b[31m"


async def test_the_commands_list_show_retry_and_drop(gateway: Gateway) -> None:
    code, out, _ = await holdfast(gateway, "list", "--session", "one")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["1", "2", "3"]
    _, out, _ = await holdfast(gateway, "list", "--json")
    assert [json.loads(line)["number"] for line in out.splitlines()] == list(range(1, 24))
    code, out, _ = await holdfast(gateway, "show", "1")
    assert code == 0
    assert "\n  two\n  lines \\x1b[31m" in out
    assert "\x1b" not in out
    _, out, _ = await holdfast(gateway, "show", "1", "--json")
    assert json.loads(out)["metadata"] == {"k": 1}

    assert await holdfast(gateway, "retry", "1") == (0, "1: stored in its place, seq 1\n", "")
    code, out, errors = await holdfast(gateway, "retry", "1")
    assert (code, out) == (1, "")
    assert "there is no dead letter 1" in errors

    code, out, errors = await holdfast(gateway, "drop", "2")
    assert (code, out) == (1, "")
    assert "--yes" in errors, "without a terminal nobody can be asked"
    assert await holdfast(gateway, "drop", "2", "--yes") == (0, "2: dropped\n", "")
    code, out, _ = await holdfast(gateway, "drop", "--all", "--session", "one", typed="n\n")
    assert (code, out) == (1, "")
    code, out, _ = await holdfast(gateway, "drop", "--all", "--session", "one", typed="y\n")
    assert (code, out) == (0, "3: dropped\n")
    assert await holdfast(gateway, "drop", "--all", "--session", "one") == (0, "no dead letters\n", "")

    code, out, _ = await holdfast(gateway, "retry", "--all")
    assert code == 0
    assert out.count("stored in its place") == 20
    for words in (["list"], ["retry", "--all"], ["drop", "--all", "--yes"]):
        assert await holdfast(gateway, *words) == (0, "no dead letters\n", "")
    assert await holdfast(gateway, "list", "--json") == (0, "", "")


async def test_the_gauge_and_the_log_tell_of_letters_that_are_kept(gateway: Gateway) -> None:
    async with gateway.http(gateway.admin) as admin, asyncio.timeout(30):
        while "holdfast_dead_letters 23.0" not in (await admin.get("/metrics")).text:
            pass
    assert '"event":"dead_letters.kept","letters":23' in gateway.log


@pytest.mark.parametrize("words", ["", "retry", "drop 1 --all", "show x", "show 99999999999999999"])
def test_wrong_words_are_wrong_usage(words: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(["dead-letters", *words.split()])
    assert left.value.code == 2


def test_a_number_and_a_session_contradict_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path))
    assert main(["dead-letters", "drop", "1", "--session", "s", "--yes"]) == 2


@pytest.mark.parametrize("payload", [b"\xff\x00 no json", b'"no object"', b"", b'{"content":"\\ud800"}'])
def test_what_cannot_be_read_is_shown_as_it_is(payload: bytes) -> None:
    letter = DeadLetter(7, Record("s", 1, "c\ud800\0", "user", "message", payload, float("inf")), "bad\nreason", 1.0)
    shown = whole(letter)
    assert json.dumps(shown).encode().decode("ascii")
    assert base64.b64decode(shown["payload"]) == payload
    assert shown["createdAt"] is None
    assert "\n" not in brief(json.loads(json.dumps(shown)))
    assert "base64" in full(shown)


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Stored(3), "seq 3"),
        (Duplicate(2), "seq 2"),
        (Dead("violates check"), "violates check"),
        (Rejected("its place is gone"), "its place is gone"),
        (Fenced(), "fenced"),
        (None, "gone already"),
    ],
)
def test_every_outcome_of_a_retry_has_words(outcome: Outcome | None, word: str) -> None:
    assert word in outcome_in_words(None if outcome is None else told(outcome))


async def test_more_letters_than_anybody_counts_are_many() -> None:
    store = MemoryStore()
    await store.create(Session("s", "ann", 1.0))
    for seq in range(1, COUNTED + 20):
        await store.commit([Write("s", Record("s", seq, f"\0{seq}", "user", "message", b"{}", 1.0))])
    assert await letters_kept(store) == COUNTED
