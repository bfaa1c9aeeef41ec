"""The screen of a chat in a terminal, and the meaning of typed lines. Pure: events and lines go in, text and actions
come out.

All text from the network is made visible before it is shown (`gateway.protocol.text`). A `Line` is complete;
`StreamedText` is a piece of an answer that may end in the middle of a line, `Break` is where the answer ends it. A
`Line` of style `note` or `warn` is not part of the conversation, and may come in the middle of an answer's line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.agents.status import MODES
from gateway.cli.client.chat import Connected, Event, FrameHeard, Lost
from gateway.cli.commands.chat_prompts import Ask, read_ask
from gateway.cli.commands.chat_turns import ChatTurns
from gateway.cli.commands.chat_work import ChatWork, brief
from gateway.protocol.text import visible, visible_line

HELP = """\
  Type a message and press Enter; the agent's answer streams in.
  While it works you can go on: one message is answered after the other.
  /steer TEXT    add to the running answer, ahead of the messages that wait
  /pending       the messages that the agent does not have yet
  /cancel SEQ    take one of them back
  /mode [WORD]   how much it may do without asking: ask, edits, all or plan
  /abort         stop the running answer
  /quit          leave; the session goes on, come back with its id
  /help          this text
  //...          send a line that begins with a slash: //help asks the agent
  Any other /word goes to the agent. The demo agent knows /permission, /ask,
  /write, /read, /long, /lines, /crash."""


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    style: str = "note"  # note, warn, ask, said (by a person or the agent)


@dataclass(frozen=True, slots=True)
class StreamedText:
    text: str


@dataclass(frozen=True, slots=True)
class Break:
    """The answer, or this part of it, ends here."""


@dataclass(frozen=True, slots=True)
class Send:
    """A frame for the gateway; after sending it, pass its `cid` to `sent`."""

    frame: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Abort:
    pass


@dataclass(frozen=True, slots=True)
class Quit:
    pass


@dataclass(frozen=True, slots=True)
class ListPending:
    pass


@dataclass(frozen=True, slots=True)
class CancelPending:
    seq: int


@dataclass(frozen=True, slots=True)
class SetMode:
    """`mode` is "" to ask for the present one."""

    mode: str


Shown = Line | StreamedText | Break
Action = Send | Abort | Quit | ListPending | CancelPending | SetMode


class ChatView:
    """One conversation as one person sees it."""

    def __init__(self) -> None:
        self.turns = ChatTurns()
        self.last_seq = 0
        self.status = "connecting"
        self.receipt = ""
        self.refused = 0  # messages from here that were not answered
        self._asks: dict[str, Ask] = {}  # by requestId, oldest first
        self._streamed = False
        self._quarter = -1  # of an image's pull, the last quarter shown
        self._lost = False
        self._own: set[str] = set()  # every cid sent from here
        self._work = ChatWork()

    @property
    def ask(self) -> Ask | None:
        """The permission or question that the next typed line answers."""
        return next(iter(self._asks.values()), None)

    def sent(self, cid: str, frame: dict[str, Any]) -> None:
        self._own.add(cid)
        if frame.get("type") == "message":
            self.turns.sent(cid)

    # events

    def show(self, event: Event) -> list[Shown]:
        match event:
            case FrameHeard(kind, body):
                return self._heard(kind, body)
            case Connected(again, recovered, _):
                self.status, was_lost, self._lost = "connected", self._lost, False
                if recovered is False:
                    # The unfinished answer is sent from its beginning: it must not go on in the middle of a line.
                    self._streamed = False
                    return [Break(), Line("connected again; missed messages come from the history")]
                return [Line("connected again")] if again and was_lost else []
            case Lost(reason, _):
                self.status, was_lost, self._lost = "reconnecting", self._lost, True
                return [] if was_lost else [Line(f"not connected: {visible_line(reason)}; trying again")]
        self.status = "ended"
        return [Line(f"ended: {visible_line(event.reason)}", "warn" if event.failed else "note")]

    def recall(self, records: Sequence[dict[str, Any]], *, answers: bool) -> list[Shown]:
        """Show stored records that were not seen live, without `answers` if the agent's frames are replayed anyway."""
        shown: list[Shown] = []
        for record in records:
            if record["seq"] > self.last_seq:
                self._note(record)
                shown += self._recalled(record, answers=answers)
        return shown

    def _recalled(self, record: dict[str, Any], *, answers: bool) -> list[Shown]:
        text = visible(plain_text(record.get("content")))
        match record.get("role"), record.get("type"):
            case "assistant", "message" if answers:
                self._streamed = False
                self.turns.answered(record["seq"], _named(record.get("metadata")))
                cut: list[Shown] = [] if record.get("status") == "complete" else [Line(f"({record.get('status')})")]
                return [StreamedText(text), Break(), *cut] if text else cut
            case _, "permission_request" | "question" if answers and record.get("status") == "open":
                return self._asked(read_ask(record["type"], record.get("content")))
            case _, "agent_status" if answers:
                return self._works("agent_status", record.get("content"))
            case "user", "message" | "raw" if record["cid"] not in self._own:
                return [Line(f"> {text}", "said")]
        return []

    def _note(self, record: dict[str, Any]) -> None:
        """Note a stored record, seen live or read from the history."""
        seq, cid = int(record["seq"]), str(record.get("cid"))
        self.last_seq = max(self.last_seq, seq)
        if record.get("type") == "message":
            if record.get("status") in ("expired", "interrupted", "cancelled"):
                self.turns.dropped(cid)
            elif record.get("status") in ("stored", "delivered"):  # not a service's note, nor an answer
                self.turns.asked(seq, cid)

    def _heard(self, kind: str, body: dict[str, Any]) -> list[Shown]:
        before = [] if kind == "thinking" else self._works("", None)
        return [*before, *self._read(kind, body)]

    def _works(self, kind: str, body: Any) -> list[Shown]:
        return [Line(text, style) for text, style in self._work.feed(kind, body)]

    def _read(self, kind: str, body: dict[str, Any]) -> list[Shown]:
        match kind:
            case "chunk":
                self._streamed = True
                return [StreamedText(visible(plain_text(body.get("text", body.get("content")))))]
            case "sdk_message":
                return self._settled(body.get("message"))
            case "output":
                return [Line(visible(plain_text(body.get("text"))), "said")]
            case "tool_permission_request":
                return self._asked(read_ask("permission_request", body))
            case "ask_user_question":
                return self._asked(read_ask("question", body))
            case "done":
                return self._done(body)
            case "error":
                told = body.get("error") or body.get("message") or "the agent reports an error"
                return [Line(visible_line(plain_text(told)), "warn")]
            case "record":
                return self._record(body)
            case "request_gone":
                return self._gone(body)
            case "expired" if isinstance(body.get("requestId"), str):
                return self._gone(body)
            case "ack" | "nack" | "receipt" | "expired" | "interrupted":
                return self._receipt(kind, body)
            case "thinking" | "todo" | "plan" | "file_change" | "usage" | "agent_status":
                return self._works(kind, body)
            case "connection_status":
                self.status = visible_line(str(body.get("sandboxStatus", "connected")))
            case "session_status":
                return self._session_status(body)
            case "going_away":
                return [Line("the gateway restarts; this chat comes back by itself")]
        return []

    def _settled(self, message: Any) -> list[Shown]:
        """The whole text of an answer that was streamed before, or that comes in this form only."""
        inner = message.get("message") if isinstance(message, dict) else None
        content = inner.get("content") if isinstance(inner, dict) else None
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        shown: list[Shown] = []
        text = plain_text(parts)
        if text and not self._streamed and message.get("type") == "assistant":
            shown.append(StreamedText(visible(text)))
        shown.append(Break())
        for part in parts:
            if isinstance(part, dict):
                shown += self._works(str(part.get("type")), part)
        self._streamed = False
        return shown

    def _asked(self, ask: Ask | None) -> list[Shown]:
        if ask is None:
            return []
        self._asks[ask.request_id] = ask
        return [Break(), *(Line(text, "ask") for text in ask.prompt())]

    def _done(self, body: dict[str, Any]) -> list[Shown]:
        self._streamed = False
        if isinstance(body.get("seq"), int):
            self.turns.answered(body["seq"], _named(body))
        metadata = body.get("metadata")
        aborted = isinstance(metadata, dict) and metadata.get("aborted")
        return [Break(), *([Line("(aborted)")] if aborted else []), *self._works("done", metadata)]

    def _gone(self, body: dict[str, Any]) -> list[Shown]:
        """The agent withdraws a request."""
        if self._asks.pop(str(body.get("requestId")), None) is None:
            return []
        reason = visible_line(plain_text(body.get("reason")), longest=200)
        return [Line("the agent no longer asks this" + (f": {reason}" if reason else ""))]

    def _record(self, body: dict[str, Any]) -> list[Shown]:
        record = body.get("record")
        if not isinstance(record, dict) or not isinstance(record.get("seq"), int):
            return []
        known = record["seq"] <= self.last_seq
        self._note(record)
        match record.get("role"), record.get("type"):
            case _, "permission_response" | "question_answer":
                content = record.get("content")
                request_id = content.get("requestId") if isinstance(content, dict) else None
                if self._asks.pop(str(request_id), None) is not None and record.get("cid") not in self._own:
                    return [Line("answered elsewhere")]
            case "user", "message" if not known and record.get("cid") not in self._own:
                return [Line(f"> {visible(plain_text(record.get('content')))}", "said")]
            case "assistant", "message" if record.get("status") == "incomplete":
                self._streamed = False
                return [Line("the answer was cut off", "warn")]
        return []

    def _receipt(self, kind: str, body: dict[str, Any]) -> list[Shown]:
        cid, seq = str(body.get("cid")), body.get("seq")
        outcome = str(body.get("status")) if body.get("status") in ("expired", "interrupted") else kind
        if outcome in ("ack", "receipt"):
            stage = visible_line(str(body.get("stage", "stored")), longest=20)
            self.receipt = f"#{seq} {stage}" if isinstance(seq, int) else stage
            if outcome == "ack" and isinstance(seq, int) and self.turns.expects(cid):
                self.turns.asked(seq, cid)
            return []
        expected = self.turns.expects(cid)
        self.turns.dropped(cid)
        cancelled = body.get("reason") == "cancelled"
        self.refused += expected and not cancelled
        reason = visible_line(str(body.get("error") or body.get("reason") or ""))
        if outcome == "nack" and cid in self._own:
            told = Line("already answered") if reason == "already_answered" else Line(f"not sent: {reason}", "warn")
            return [told]
        if not expected:
            return []
        if cancelled:
            return [Line(f"message #{seq} was cancelled; the agent will not get it")]
        if outcome == "expired":
            return [Line(f"message #{seq} expired before the agent could take it; send it again", "warn")]
        return [Line(f"message #{seq} was interrupted; the agent may have seen it", "warn")]

    def _session_status(self, body: dict[str, Any]) -> list[Shown]:
        status, reason = visible_line(str(body.get("status"))), visible_line(str(body.get("reason") or ""))
        if status in ("pulling", "pulled"):
            return self._pull(status, body)
        if status in ("error", "needs_env", "unrestored", "restore_failed", "paused", "archived"):
            return [Line(f"session {status}" + (f": {reason}" if reason else ""), "warn")]
        return []

    def _pull(self, status: str, body: dict[str, Any]) -> list[Shown]:
        """Progress of an image's pull, once at first and then for each quarter of its known size."""
        image = visible_line(str(body.get("image")), longest=200)
        if status == "pulled":
            self._quarter = -1
            return [Line(f"the image {image} is there")]
        got, whole = body.get("bytes"), body.get("ofBytes")
        quarter = 4 * got // whole if isinstance(got, int) and isinstance(whole, int) and whole > 0 else 0
        if quarter <= self._quarter:
            return []
        first, self._quarter = self._quarter < 0, quarter
        return [Line(f"fetching the image {image}" if first else f"fetching the image {image}: {25 * quarter} %")]

    # typed lines

    def read(self, typed: str) -> tuple[list[Shown], Action | None]:
        """The lines to show for a typed line, and the action to take."""
        line = typed.strip()
        match line:
            case "":
                return [], None
            case "/help":
                return [Line(HELP)], None
            case "/quit" | "/exit":
                return [], Quit()
            case "/abort":
                return [], Abort()
            case "/pending":
                return [], ListPending()
        word, _, rest = line.partition(" ")
        match word, rest.strip():
            case "/steer", "":
                return [Line("/steer TEXT: the text to add to the running answer", "warn")], None
            case "/steer", text:
                return [], Send({"type": "message", "content": text, "metadata": {"steer": True}})
            case "/cancel", number:
                return self._cancels(number)
            case "/mode", mode if mode in ("", *MODES):
                return [], SetMode(mode)
            case "/mode", _:
                return [Line(f"/mode is one of {', '.join(MODES)}", "warn")], None
        if (ask := self.ask) is not None:
            answered, hint = ask.answer(line)
            if answered is None:
                return [Line(hint, "ask")], None
            self._asks.pop(ask.request_id)
            return [], Send(answered)
        return [], Send({"type": "message", "content": typed[1:] if line.startswith("//") else typed})

    @staticmethod
    def _cancels(number: str) -> tuple[list[Shown], Action | None]:
        seq = number.removeprefix("#")
        if seq.isascii() and seq.isdecimal() and len(seq) < 16:
            return [], CancelPending(int(seq))
        return [Line("/cancel SEQ: the number of a message, as /pending lists it", "warn")], None


def listed_pending(messages: Sequence[dict[str, Any]]) -> list[Shown]:
    """The messages that the agent does not have yet, a line each."""
    if not messages:
        return [Line("no message waits: the agent has all of them")]
    return [Line(f"#{each.get('seq')}  {brief(plain_text(each.get('content')))}") for each in messages]


def _named(body: Any) -> Sequence[int] | None:
    """The messages that a `done` or a stored answer names; None if it names none."""
    named = body.get("answers") if isinstance(body, dict) else None
    return [seq for seq in named if type(seq) is int] if isinstance(named, list) else None


def plain_text(content: Any) -> str:
    """The text of a message's content: a string, or the text parts of an array."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(plain_text(part.get("text")) for part in content if isinstance(part, dict))
    return ""
