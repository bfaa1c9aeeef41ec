"""The chat on a terminal: answers stream above a line that can be typed into at any time.

Complete lines are printed above the prompt. The unfinished last line of an answer is shown as part of the prompt
itself, because a terminal cannot print half a line above another. Printing takes the prompt away and draws it again, so
lines are collected for a moment and leave together, in order.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.styles import Style

from gateway.cli.commands.chat_view import Break, ChatView, Line, Shown, StreamedText

PRINT_SECONDS = 0.02
STYLE = Style.from_dict(
    {
        "note": "ansibrightblack",
        "warn": "ansiyellow",
        "ask": "ansicyan bold",
        "said": "ansiblue",
        "answer": "",
        "prompt": "ansigreen bold",
        "bottom-toolbar": "noreverse ansibrightblack",
    }
)
Styled = list[tuple[str, str]]


class TerminalScreen:
    def __init__(self, view: ChatView, session_id: str, come_back: str) -> None:
        self._view = view
        self._session_id = session_id
        self._come_back = come_back
        self._partial = ""
        self._printed: Styled = []  # collected, not yet on the terminal
        self._prompt: PromptSession[str] = PromptSession(
            message=self._message, bottom_toolbar=self._toolbar, style=STYLE, erase_when_done=True
        )

    def __enter__(self) -> Self:
        self._print("note", f"session {self._session_id} · /help for help · Ctrl-D leaves, the session goes on")
        self._flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish_line()
        self._print("note", f"come back with: {self._come_back}")
        self._flush()

    def show(self, shown: Sequence[Shown]) -> None:
        for each in shown:
            match each:
                case StreamedText(text):
                    *whole, self._partial = (self._partial + text).split("\n")
                    for line in whole:
                        self._print("answer", line)
                case Break():
                    self._finish_line()
                case Line(text, style):
                    self._finish_line()
                    self._print(style, text)
        self._prompt.app.invalidate()

    async def lines(self) -> AsyncIterator[str]:
        while True:
            try:
                line = await self._prompt.prompt_async()
            except EOFError:
                return
            except KeyboardInterrupt:
                if not self._view.turns.waiting:
                    self._print("note", "/quit or Ctrl-D leaves")
                    continue
                line = "/abort"
            if line.strip():
                self._print("prompt", f"> {line}")
            yield line

    def _finish_line(self) -> None:
        if self._partial:
            self._print("answer", self._partial)
        self._partial = ""

    def _print(self, style: str, text: str) -> None:
        if not self._printed:
            asyncio.get_running_loop().call_later(PRINT_SECONDS, self._flush)
        self._printed.append((f"class:{style}", text + "\n"))

    def _flush(self) -> None:
        if self._printed:
            print_formatted_text(FormattedText(self._printed), style=STYLE, end="")
        self._printed = []

    def _message(self) -> FormattedText:
        streaming: Styled = [("class:answer", self._partial + "\n")] if self._partial else []
        return FormattedText([*streaming, ("class:prompt", "? " if self._view.ask is not None else "> ")])

    def _toolbar(self) -> FormattedText:
        parts = [self._view.status, self._view.receipt, "answering…" if self._view.turns.waiting else ""]
        return FormattedText([("class:bottom-toolbar", " · ".join(part for part in parts if part))])
