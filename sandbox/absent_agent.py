"""The agent of a session whose agent cannot run: `python -m sandbox.absent_agent CODE WORDS`. It answers each message
with WORDS, which give the reason and what to do. `CODE` is the reason for programs."""

import json
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any


def answers(lines: Iterable[bytes], code: str, words: str) -> Iterator[bytes]:
    """The answers to these lines, until one of them is `close`."""
    for line in lines:
        match _frame(line):
            case {"type": "message", **rest}:
                named = {name: rest[name] for name in ("seq", "cid") if name in rest}
                content = [{"type": "text", "text": words}]
                yield _line(type="sdk_message", message={"type": "assistant", "message": {"content": content}})
                yield _line(type="done", metadata={**named, "reason": code})
            case {"type": "close"}:
                return


def _frame(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _line(**members: Any) -> bytes:
    return json.dumps(members, ensure_ascii=False).encode(errors="replace") + b"\n"


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is no turn to stop
    code, words = sys.argv[1:3]
    try:
        for answer in answers(sys.stdin.buffer, code, words):
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
