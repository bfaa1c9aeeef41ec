"""`holdfast chat [SESSION]`: a conversation in the terminal, or line by line for scripts."""

import asyncio
import random
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.cli.client.api import CommandFailed, GatewayApi, find_gateway
from gateway.cli.client.chat import ChatClient, Connected, ConnectionEnded, NotTaken
from gateway.cli.commands.chat_view import (
    Abort,
    Action,
    Break,
    CancelPending,
    ChatView,
    Line,
    ListPending,
    Quit,
    Send,
    SetMode,
    Shown,
    StreamedText,
    listed_pending,
)
from gateway.cli.commands.credentials import token_source
from gateway.cli.console.output import as_typed, complain
from gateway.cli.console.stdin_lines import input_lines
from gateway.config.settings import Settings

RECALLED = 20


@dataclass(frozen=True, slots=True)
class ChatOptions:
    session_id: str | None
    url: str | None
    token: str | None
    user: str | None
    email: str | None
    plain: bool
    agent: str | None = None  # for a new session
    mode: str | None = None  # likewise


class ChatScreen(Protocol):
    """The place of a chat. `show` never waits."""

    def show(self, shown: Sequence[Shown]) -> None: ...

    def lines(self) -> AsyncIterator[str]:
        """The person's lines, one by one, until they are done."""
        ...


class Chat:
    """One client, one view, one screen. A `patient` chat reads the next line when the last one is answered."""

    def __init__(
        self, client: ChatClient, api: GatewayApi, session_id: str, view: ChatView, screen: ChatScreen, *, patient: bool
    ) -> None:
        self._client = client
        self._api = api
        self._session_id = session_id
        self._history = f"/api/sessions/{session_id}/messages"
        self._view = view
        self._screen = screen
        self._patient = patient
        self._changed = asyncio.Event()
        self._failed = False

    async def run(self) -> int:
        """Return 0 if every message was answered, 1 if one was not."""
        async with asyncio.TaskGroup() as tasks:
            typing = tasks.create_task(self._type(), name="chat.type")
            await self._listen()
            typing.cancel()
        return int(self._failed or self._view.refused > 0)

    async def _listen(self) -> None:
        async for event in self._client.events():
            self._screen.show(self._view.show(event))
            if isinstance(event, Connected):
                await self._catch_up(event)
            elif isinstance(event, ConnectionEnded):
                self._failed = event.failed
            self._changed.set()

    async def _catch_up(self, event: Connected) -> None:
        """Read from the history the records that frames do not replay: all of them, but no answers if the position was
        met. Records stored after the welcome come as frames; an answer that ended just now would be shown twice.
        """
        answers = event.recovered is not True
        before = event.last_seq + 1
        query = (
            {"after": self._view.last_seq, "before": before} if event.again else {"before": before, "limit": RECALLED}
        )
        try:
            while event.last_seq > self._view.last_seq and (records := await self._api.history(self._history, **query)):
                self._screen.show(self._view.recall(records, answers=answers))
                query = {"after": self._view.last_seq, "before": before}
        except CommandFailed as failure:
            self._screen.show([Line(f"the history cannot be read: {failure}", "warn")])

    async def _type(self) -> None:
        async for line in self._screen.lines():
            shown, action = self._view.read(line)
            self._screen.show(shown)
            if isinstance(action, Quit):
                break
            if action is not None:
                await self._perform(action)
            if self._patient:
                await self._quiet()
        else:
            if self._patient and self._view.ask is not None:
                self._screen.show([Line("the input ended while the agent waits for an answer", "warn")])
                self._failed = True
        await self._client.leave()

    async def _perform(self, action: Action) -> None:
        match action:
            case Send(frame):
                try:
                    self._view.sent(await self._client.post(frame), frame)
                except NotTaken as reason:
                    self._failed = True
                    self._screen.show([Line(f"not sent: {reason}", "warn")])
            case Abort() if not await self._client.abort():
                self._screen.show([Line("not connected: nothing to abort from here", "warn")])
            case ListPending() | CancelPending() | SetMode():
                try:
                    self._screen.show(await self._ask(action))
                except CommandFailed as failure:
                    self._screen.show([Line(str(failure), "warn")])

    async def _ask(self, action: ListPending | CancelPending | SetMode) -> Sequence[Shown]:
        match action:
            case ListPending():
                return listed_pending(await self._api.pending(self._session_id))
            case CancelPending(seq):
                await self._api.cancel_pending(self._session_id, seq)
                return [Line(f"#{seq} is cancelled")]
            case SetMode(""):
                status = (await self._api.session(self._session_id)).get("agentStatus") or {}
                return [Line(f"mode: {status.get('mode') or 'the default of the agent'}")]
            case SetMode(mode):
                await self._api.set_mode(self._session_id, mode)
                return [Line(f"mode: {mode}")]

    async def _quiet(self) -> None:
        """Wait until the person is asked something, or all sent messages are settled."""
        while self._view.ask is None and (self._view.turns.waiting or self._client.unsettled):
            self._changed.clear()
            await self._changed.wait()


class PlainScreen:
    """For scripts: the agent's words go to stdout, everything else to stderr."""

    def __init__(self) -> None:
        self._inside_line = False

    def show(self, shown: Sequence[Shown]) -> None:
        for each in shown:
            match each:
                case StreamedText(text):
                    sys.stdout.write(text)
                    self._inside_line = not text.endswith("\n") if text else self._inside_line
                case Break():
                    self._end_line()
                case Line(text, "said" | "ask"):
                    self._end_line()
                    sys.stdout.write(text + "\n")
                case Line(text):
                    complain(text)
        sys.stdout.flush()

    def _end_line(self) -> None:
        if self._inside_line:
            sys.stdout.write("\n")
        self._inside_line = False

    def lines(self) -> AsyncIterator[str]:
        return typed_lines()


async def typed_lines(descriptor: int = 0) -> AsyncIterator[str]:
    async for line in input_lines(descriptor):
        yield line.decode(errors="replace").rstrip("\r")


async def chat(settings: Settings, options: ChatOptions) -> int:
    """Talk until the person leaves; the session goes on without them."""
    token = token_source(settings, token=options.token, user=options.user, email=options.email)
    url = find_gateway(settings, options.url)
    session_id = options.session_id or secrets.token_hex(16)
    async with GatewayApi(url, lambda: {"Authorization": f"Bearer {token()}"}) as api:
        if options.session_id is None:
            wish = {"title": "holdfast chat", "agent": options.agent, "mode": options.mode}
            await api.create(session_id, {name: value for name, value in wish.items() if value is not None})
        client = ChatClient(url, session_id, token, rng=random.Random())
        view = ChatView()
        if options.plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
            complain(f"session {session_id}")
            return await Chat(client, api, session_id, view, PlainScreen(), patient=True).run()
        from gateway.cli.commands.chat_screen import TerminalScreen

        with TerminalScreen(view, session_id, _come_back(session_id, options)) as screen:
            return await Chat(client, api, session_id, view, screen, patient=False).run()


def _come_back(session_id: str, options: ChatOptions) -> str:
    """The command that comes back to this session, as the same person."""
    same = {"--url": options.url, "--user": options.user}
    return as_typed("chat", session_id, *(word for name, value in same.items() if value for word in (name, value)))
