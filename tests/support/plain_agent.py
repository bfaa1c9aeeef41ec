"""An agent that speaks chat frames itself, as the docs describe: a real one, with a model behind Anthropic's API at
ANTHROPIC_BASE_URL, a shell tool and one that asks the user. It keeps its conversation in HOME. It imports nothing of
ours, so that `python3 -c` can run its source anywhere."""

import http.client
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TOOLS = [
    {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}},
    {"name": "AskUserQuestion", "input_schema": {"type": "object", "properties": {"questions": {"type": "array"}}}},
]
Frame = dict[str, Any]


class Aborted(Exception):
    """The turn was aborted."""


class ModelFailed(Exception):
    """The text says how."""


class PlainAgent:
    def __init__(self) -> None:
        self._memory = Path(os.environ["HOME"], "conversation.json")
        self._said: list[Frame] = json.loads(self._memory.read_text()) if self._memory.exists() else []
        self._messages: queue.Queue[Frame | None] = queue.Queue()
        self._answers: queue.Queue[Frame] = queue.Queue()
        self._line: socket.socket | None = None  # to the model, while it speaks
        self._aborted = False

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while (frame := self._messages.get()) is not None:
            self._turn(frame)

    def _listen(self) -> None:
        for line in sys.stdin:
            frame = json.loads(line)
            match frame["type"]:
                case "message":
                    self._messages.put(frame)
                case "permission_response" | "ask_user_answer":
                    self._answers.put(frame)
                case "abort":
                    self._aborted = True
                    self._answers.put(frame)
                    if self._line is not None:
                        self._line.shutdown(socket.SHUT_RDWR)
        self._messages.put(None)

    def _turn(self, frame: Frame) -> None:
        self._aborted = False
        self._answers = queue.Queue()
        self._remember("user", frame["content"])
        metadata: Frame = {}
        try:
            while (call := self._answer()) is not None:
                result = {"type": "tool_result", "tool_use_id": call["id"], "content": self._use(call)}
                self._remember("user", [result])
                say("sdk_message", message={"type": "user", "message": {"role": "user", "content": [result]}})
        except Aborted:
            metadata = {"aborted": True}
        except ModelFailed as failed:
            say("error", code="agent", error=str(failed))
            metadata = {"error": True}
        say("done", answers=[frame["seq"]], metadata=metadata)

    def _remember(self, role: str, content: Any) -> None:
        self._said.append({"role": role, "content": content})
        draft = self._memory.with_suffix(".new")
        draft.write_text(json.dumps(self._said))
        draft.rename(self._memory)

    def _answer(self) -> Frame | None:
        """The model's next answer, streamed; the tool that it calls, if any."""
        words, call, given = "", None, ""
        say("stream_start")
        for event in self._events():
            match event:
                case {"delta": {"type": "text_delta", "text": str(text)}}:
                    words += text
                    say("chunk", text=text)
                case {"type": "content_block_start", "content_block": {"type": "tool_use"} as block}:
                    call = block
                case {"delta": {"type": "input_json_delta", "partial_json": str(text)}}:
                    given += text
        say("stream_end")
        blocks: list[Frame] = [{"type": "text", "text": words}]
        if call is not None:
            call = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": json.loads(given)}
            blocks.append(call)
        self._remember("assistant", blocks)
        say("sdk_message", message={"type": "assistant", "message": {"role": "assistant", "content": blocks}})
        return call

    def _events(self) -> Any:
        model = os.environ["ANTHROPIC_BASE_URL"]
        proxy = os.environ.get("HTTP_PROXY")  # a sandbox has no other way out
        way = urlsplit(proxy or model)
        body = {"model": os.environ.get("ANTHROPIC_MODEL", "m1"), "stream": True, "max_tokens": 8000}
        said = json.dumps({**body, "messages": self._said, "tools": TOOLS})
        headers = {"Content-Type": "application/json", "X-API-Key": os.environ.get("ANTHROPIC_API_KEY", "")}
        connection = http.client.HTTPConnection(str(way.hostname), way.port or 80)
        try:
            connection.request("POST", f"{model if proxy else ''}/v1/messages", said, headers)
            self._line = connection.sock
            answer = connection.getresponse()
            if answer.status != 200:
                raise ModelFailed(f"the model answered {answer.status}")
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        except (OSError, http.client.HTTPException) as error:
            if not self._aborted:
                raise ModelFailed(str(error)) from error
        finally:
            self._line = None
            connection.close()
        if self._aborted:
            raise Aborted

    def _use(self, call: Frame) -> str:
        if call["name"] == "AskUserQuestion":
            answer = self._ask("ask_user_question", call, questions=call["input"]["questions"])
            return json.dumps(answer.get("answers"))
        answer = self._ask("tool_permission_request", call, toolName=call["name"], toolInput=call["input"])
        if answer.get("allow") is not True:
            return "The user said no."
        done = subprocess.run(["sh", "-c", call["input"]["command"]], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def _ask(self, kind: str, call: Frame, **members: Any) -> Frame:
        say(kind, requestId=call["id"], **members)
        while (answer := self._answers.get()).get("requestId") != call["id"]:
            if self._aborted:
                say("request_gone", requestId=call["id"], reason="the turn was aborted")
                raise Aborted
        return answer


def say(kind: str, **members: Any) -> None:
    os.write(1, json.dumps({"type": kind, **members}).encode() + b"\n")


if __name__ == "__main__":
    PlainAgent().run()
