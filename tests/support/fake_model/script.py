"""What the model does, told by the last `@@word rest` in what users said:

@@say TEXT       say TEXT                          @@recall         say all that users said to say or to run
@@run CMD        call the shell tool               @@write FILE T   call the tool that writes files
@@escalate CMD   the same, asking for more rights  @@ask            call the tool that asks the user
@@think TEXT     think, then say TEXT              @@hang TEXT      say TEXT, and never end
@@big N          say N bytes                       @@error CODE     answer with this HTTP status
@@loop N CMD     call the shell tool N times      @@picture FILE   call the tool that shows a picture

After a tool's result it says `The tool said: ...`. A key with `bad` in it is refused, and a model called `missing` is
none.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SHELL = ("Bash", "bash", "exec_command", "shell_command", "shell", "run_shell_command")
READ = ("Read", "read", "read_file", "view_image")
PATHS = ("file_path", "filePath", "absolute_path", "path")
WRITE = ("Write", "write", "write_file")
ASK = ("AskUserQuestion", "question", "ask_user", "request_user_input")
TOLD = re.compile(r"@@(\w+)(?:[ \t]+([^\n<]*))?")
SAID = re.compile(r"@@(?:say|run|think|escalate)[ \t]+([^\n<]*)")
LINE = "0123456789abcdef" * 4 + "\n"
QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [
        {"label": "red", "description": "the red one"},
        {"label": "blue", "description": "the blue one"},
    ],
}


@dataclass(frozen=True, slots=True)
class Deed:
    """What the model does next: fail with `status`, or think, say `words`, and then call `tool`, or never end."""

    words: str = ""
    thought: str = ""
    tool: str = ""
    given: Any = None
    status: int = 200
    hangs: bool = False

    @property
    def pieces(self) -> Iterator[str]:
        """Its words as a model streams them."""
        if len(self.words) > 10_000:
            yield from (self.words[at : at + 64] for at in range(0, len(self.words), 64))
        else:
            yield from re.findall(r"\S+\s*|\s+", self.words)


@dataclass(slots=True)
class Talk:
    """One request: what was said so far, as (kind, text) with the kinds user and result; and the tools there are."""

    said: list[tuple[str, str]] = field(default_factory=list)
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def directive(self) -> tuple[str, str, list[str]]:
        """The word, what follows it, and the results of tools since."""
        word, rest, results = "", "", list[str]()
        for kind, text in self.said:
            if kind == "user":
                for found in TOLD.finditer(text):
                    word, rest, results = found[1], (found[2] or "").strip(), []
            else:
                results.append(text)
        return word, rest, results

    def tool(self, names: tuple[str, ...]) -> str:
        return next((name for name in names if name in self.tools), "")

    def has(self, tool: str, parameter: str) -> bool:
        return parameter in self.tools.get(tool, {}).get("properties", {})


def decide(talk: Talk) -> Deed:
    word, rest, results = talk.directive
    if not talk.tools:
        return Deed("A title")
    match word:
        case "say":
            return Deed(rest)
        case "think":
            return Deed(rest, thought="Let me think about it.")
        case "recall":
            said = [words for kind, text in talk.said if kind == "user" for words in SAID.findall(text)]
            return Deed("I remember: " + " | ".join(said))
        case "big":
            return Deed((LINE * (int(rest) // len(LINE) + 1))[: int(rest)])
        case "hang":
            return Deed(rest, hangs=True)
        case "error":
            return Deed(status=int(rest))
        case "loop":
            count, _, command = rest.partition(" ")
            return shell(talk, command) if len(results) < int(count) else Deed(f"Looped {count} times.")
        case "run" | "escalate" | "write" | "ask" | "picture" if results:
            return Deed("The tool said: " + results[-1].strip()[:300])
        case "run":
            return shell(talk, rest)
        case "escalate":
            return shell(talk, rest, sandbox_permissions="require_escalated", justification="it must write")
        case "write":
            return _write(talk, *rest.partition(" ")[::2])
        case "ask":
            return _ask(talk)
        case "picture":
            tool = talk.tool(READ)
            name = next((name for name in PATHS if talk.has(tool, name)), "path")
            return Deed("I will call a tool.", tool=tool, given={name: rest})
    return Deed("Hello from the fake model.")


def shell(talk: Talk, command: str, **more: str) -> Deed:
    tool = talk.tool(SHELL)
    given: dict[str, Any] = {"cmd" if talk.has(tool, "cmd") else "command": command, **more}
    if talk.has(tool, "description"):
        given["description"] = "run it"
    return Deed("I will call a tool.", tool=tool, given=given)


def _write(talk: Talk, file: str, text: str) -> Deed:
    tool = talk.tool(WRITE)
    if not tool:
        patch = f"*** Begin Patch\n*** Add File: {file}\n+{text}\n*** End Patch\n"
        return shell(talk, f"apply_patch <<'EOF'\n{patch}EOF\n")
    name = next((each for each in ("file_path", "filePath") if talk.has(tool, each)), "path")
    return Deed("I will call a tool.", tool=tool, given={name: file, "content": f"{text}\n"})


def _ask(talk: Talk) -> Deed:
    tool = talk.tool(ASK)
    if talk.has(tool, "options"):
        return Deed("I will call a tool.", tool=tool, given=QUESTION)
    question = {**QUESTION, **({"id": "colour"} if tool == "request_user_input" else {"multiSelect": False})}
    return Deed("I will call a tool.", tool=tool, given={"questions": [question]})
