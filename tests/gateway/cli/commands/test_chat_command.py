"""`holdfast chat` and `messages --follow` against a real gateway: by script, across a kill, on a terminal."""

import asyncio
import contextlib
import os
import pty
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateway import Gateway
from tests.support.launcher import Launched, launch
from tests.support.waiting import until

PATIENCE_SECONDS = 120  # on a busy machine every command takes its time to start
SESSION = re.compile(r"session ([A-Za-z0-9_-]+)")


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("chat") / "data") as running:
        yield running


def environment(gateway: Gateway) -> dict[str, str]:
    return {**gateway.environment(), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}


class Command:
    """One running command with pipes; `out` and `err` grow while it talks."""

    def __init__(self, process: Launched) -> None:
        self.process = process
        self.out, self.err = "", ""
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read(process.stdout, "out")),
            asyncio.create_task(self._read(process.stderr, "err")),
        ]

    async def _read(self, stream: asyncio.StreamReader, name: str) -> None:
        while chunk := await stream.read(65536):
            setattr(self, name, getattr(self, name) + chunk.decode())

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())

    async def until(self, words: str, *, stream: str = "out") -> None:
        """Wait until the command has said `words`."""
        await until(lambda: words in getattr(self, stream), lambda: f"{words!r}; said: {self.out!r} {self.err!r}")

    async def finish(self) -> int:
        """End its input, wait for its end; its exit code."""
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        return code


@contextlib.asynccontextmanager
async def running(gateway: Gateway, *words: str) -> AsyncIterator[Command]:
    pipe = asyncio.subprocess.PIPE
    process = await launch(
        *words,
        stdin=pipe, stdout=pipe, stderr=pipe, env=environment(gateway),
    )  # fmt: skip
    command = Command(process)
    try:
        yield command
    finally:
        if process.returncode is None:
            process.kill()
        await command.finish()


async def test_a_script_talks_asks_and_answers(gateway: Gateway) -> None:
    async with running(gateway, "chat", "--user", "ada") as chat:
        chat.type("hello there\n/permission dance\nmaybe\ny\n/ask colour\n2\n")
        assert await chat.finish() == 0
    assert chat.out.startswith("hello there\n")
    assert "asks to use demo" in chat.out
    assert "Please answer y or n" in chat.out
    assert "Allowed: dance" in chat.out
    assert '"colour": "green"' in chat.out
    found = SESSION.search(chat.err)
    assert found is not None
    roles = [(record["role"], record["type"]) for record in await gateway.messages(found[1])]
    assert roles[:3] == [("user", "message"), ("assistant", "message"), ("user", "message")]

    async with running(gateway, "chat", found[1], "--user", "ada") as again:
        again.type("back\n")
        assert await again.finish() == 0
    assert "> hello there\nhello there\n" in again.out, "the conversation so far is shown"
    assert again.out.endswith("back\n")


async def test_the_agent_is_led_by_commands(gateway: Gateway) -> None:
    async with running(gateway, "chat", "--agent", "demo", "--mode", "ask", "--user", "ada") as chat:
        chat.type("/mode\n/mode plan\n/pending\n/cancel 99\nhello\n/steer and this\n")
        assert await chat.finish() == 0
    told = [line.rpartition("mode: ")[2] for line in chat.err.splitlines() if "mode: " in line]
    assert told == ["ask", "plan"], chat.err
    assert "no message waits" in chat.err
    assert "no such message" in chat.err
    assert chat.out == "hello\nand this\n"
    found = SESSION.search(chat.err)
    assert found is not None
    steered = [record for record in await gateway.messages(found[1]) if record["content"] == "and this"]
    assert steered[0]["metadata"] == {"steer": True}


async def test_what_is_for_new_sessions_is_refused_for_others(gateway: Gateway) -> None:
    for option, word in (("--agent", "demo"), ("--mode", "plan")):
        async with running(gateway, "chat", "first", option, word) as chat:
            assert await chat.finish() == 2
        assert f"{option} is for a new session" in chat.err


async def test_no_input_at_all_is_a_short_conversation(gateway: Gateway) -> None:
    async with running(gateway, "chat") as chat:
        assert await chat.finish() == 0
    assert chat.out == ""


async def test_input_that_ends_before_a_question_is_answered_is_a_failure(gateway: Gateway) -> None:
    async with running(gateway, "chat") as chat:
        chat.type("/permission leave\n")
        assert await chat.finish() == 1
    assert "waits for an answer" in chat.err


async def test_a_session_of_somebody_else_is_no_session(gateway: Gateway) -> None:
    await gateway.create("not-yours", "ada")
    async with running(gateway, "chat", "not-yours", "--user", "eve") as chat:
        chat.type("let me in\n")
        assert await chat.finish() == 1
    assert "there is no such session" in chat.err
    assert await gateway.messages("not-yours") == []


async def test_an_answer_goes_on_where_it_was_when_the_gateway_is_killed(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await gateway.create("s1")
        async with running(gateway, "chat", "s1", "--user", "ada") as chat:
            chat.type("/long 3\n")
            await chat.until(" ")
            await gateway.restart(kill=True)
            chat.type("and now?\n")
            assert await chat.finish() == 0
        assert "trying again" in chat.err
        assert "connected again" in chat.err
        records = await gateway.messages("s1")
    answers = [record["content"] for record in records if record["role"] == "assistant"]
    assert answers[1] == "and now?"
    whole = answers[0].rstrip("\n") + "\nand now?\n"
    if "come from the history" in chat.err:  # the gateway said recovered:false: all of it again, from the beginning
        assert chat.out.endswith("\n" + whole)
    else:
        assert chat.out == whole, "every piece once, in order"


async def test_following_prints_what_is_stored_from_now_on(gateway: Gateway) -> None:
    await gateway.create("followed")
    async with (
        running(gateway, "messages", "followed", "--follow") as follower,
        gateway.http(gateway.internal) as service,
    ):
        for text in ("first", "second"):
            body = {"role": "system", "type": "note", "content": text}
            await service.post("/internal/sessions/followed/messages", json=body)
            await follower.until(f"  {text}\n")
        follower.process.send_signal(signal.SIGINT)
        assert await follower.finish() == 130
    assert "Traceback" not in follower.err


class Terminal:
    """A person at a terminal: a pty whose output is collected."""

    def __init__(self, descriptor: int, process: Launched) -> None:
        self._descriptor = descriptor
        self.process = process
        self.seen = ""
        self._answered = 0
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            chunk = os.read(self._descriptor, 65536)
        except OSError:  # the other side has gone
            chunk = b""
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            return
        self.seen += chunk.decode(errors="replace")
        asked = self.seen.count("\x1b[6n")  # where is the cursor? It waits for a terminal's answer
        os.write(self._descriptor, b"\x1b[1;1R" * (asked - self._answered))
        self._answered = asked

    @property
    def text(self) -> str:
        """What is seen, without colours and cursor movements."""
        return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])", "", self.seen)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    async def until(self, words: str) -> None:
        await until(lambda: words in self.text, lambda: f"{words!r}; seen: {self.text[-2000:]!r}")

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)


async def test_a_person_at_a_terminal_can_talk_allow_abort_and_leave(gateway: Gateway) -> None:
    ours, theirs = pty.openpty()
    process = await launch(
        "chat", "--user", "ada",
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(gateway),
    )  # fmt: skip
    os.close(theirs)
    terminal = Terminal(ours, process)
    try:
        await terminal.until("connect")  # the status line is drawn: by now the line can be typed into
        terminal.type("good morning\r")
        await terminal.until("> good morning")
        terminal.type("/permission sing\r")
        await terminal.until("Allow it? y/n")
        terminal.type("n\r")
        await terminal.until("Denied")
        terminal.type("/long 60\r")
        await terminal.until("tick")  # the turn has begun: there is something to stop
        terminal.type("/abort\r")
        await terminal.until("(aborted)")
        terminal.type("/quit\r")
        await terminal.until("come back with: ")
        await terminal.until(" --user ada")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        terminal.close()
