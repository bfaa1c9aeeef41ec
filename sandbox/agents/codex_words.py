"""Codex's protocol: its server's configuration, requests and answers, and its events that no user needs. Pure."""

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from sandbox.agents.core import Out, ToAgent
from sandbox.agents.json_lines import count, items, line, text, word, words_of

THREAD = "thread"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# First words of commands that change files, processes, packages or the world, or that run other programs.
ASKED = [
    "apt",
    "apt-get",
    "bash",
    "cargo",
    "chmod",
    "chown",
    "cp",
    "curl",
    "dd",
    "dnf",
    "docker",
    "env",
    "find",
    "git",
    "go",
    "install",
    "kill",
    "ln",
    "make",
    "mkdir",
    "mv",
    "nc",
    "node",
    "npm",
    "npx",
    "perl",
    "pip",
    "pip3",
    "pkill",
    "pnpm",
    "podman",
    "python",
    "python3",
    "rm",
    "rmdir",
    "rsync",
    "ruby",
    "scp",
    "sed",
    "sh",
    "shred",
    "ssh",
    "su",
    "sudo",
    "tee",
    "touch",
    "truncate",
    "uv",
    "wget",
    "xargs",
    "yarn",
]
RULES = "".join(f'prefix_rule(pattern=["{word}"], decision="prompt")\n' for word in ASKED).encode()
TOOLS = {
    "commandExecution": "shell",
    "fileChange": "apply_patch",
    "imageView": "view_image",
    "webSearch": "web_search",
    "mcpToolCall": "mcp",
}
GIVEN = ("command", "cwd", "changes", "server", "tool", "arguments", "query", "path")
SILENT = re.compile(
    r"thread/(started|status/changed|readState/changed|name/updated|goal/cleared|settings/updated|queue/changed)"
    r"|(account|remoteControl|model|hook)/.*|warning|configWarning|deprecationNotice|skills/changed|turn/diff/updated"
    r"|item/reasoning/(summaryPartAdded|textDelta)|item/(commandExecution|fileChange)/outputDelta"
    r"|item/fileChange/patchUpdated|item/plan/delta|app/list/updated|project/changed|mcpServer/startupStatus/updated"
)


def kept(frame: dict[str, Any]) -> dict[str, Any]:
    """The members of a message that are needed to send it again."""
    return {"seq": frame.get("seq"), "cid": text(frame.get("cid")), "content": words_of(frame.get("content"))}


def home_of(env: Mapping[str, str]) -> str:
    """Codex's own directory, below HOME."""
    configured, home = PurePosixPath(env.get("CODEX_HOME", "")), env.get("HOME", "")
    if home and configured.is_absolute() and configured.is_relative_to(home):
        return str(configured.relative_to(home))
    return ".codex"


def provider(address: str) -> list[str]:
    """For a home without a login and a configuration. Without a key in the environment, Codex then fails at once. By
    default it would try its own provider, for minutes if the sandbox has no network."""
    named = {"name": "OpenAI", "base_url": address, "env_key": "OPENAI_API_KEY", "wire_api": "responses"}
    settings = [f"model_providers.holdfast.{name}={json.dumps(each)}" for name, each in named.items()]
    retries = [f"model_providers.holdfast.{kind}_max_retries=2" for kind in ("request", "stream")]
    return ['model_provider="holdfast"', *settings, *retries]


def thread_of(notes: Mapping[str, str]) -> str:
    """The thread that earlier processes noted; else nothing."""
    thread = notes.get(THREAD, "")
    return thread if UUID.fullmatch(thread) else ""


def reply(number: int | str, result: dict[str, Any]) -> Out:
    """An answer to the server's request of that number."""
    return ToAgent(line({"id": number, "result": result}))


def answer(asked: dict[str, Any], frame: dict[str, Any]) -> dict[str, Any]:
    """The result of a request: what a person said, in `frame`, to what was `asked`."""
    given = asked["params"]
    if asked["method"] == "item/tool/requestUserInput":
        answers = frame.get("answers", frame.get("answer"))
        return {
            "answers": {
                text(each.get("id")): {"answers": _labels(_of(answers, each))} for each in items(given.get("questions"))
            }
        }
    if frame.get("allow") is True or frame.get("behavior") == "allow":
        return {"decision": "acceptForSession" if frame.get("always") is True else "accept"}
    return {"decision": "cancel" if frame.get("interrupt") is True else "decline"}


def _of(answers: Any, question: dict[str, Any]) -> Any:
    """Answers by the question's text or its id. A single answer counts for every question."""
    if not isinstance(answers, dict):
        return answers
    return answers.get(text(question.get("question")), answers.get(text(question.get("id"))))


def _labels(answer: Any) -> list[str]:
    if isinstance(answer, list):
        return [word(each) for each in answer]
    return [] if answer is None else [word(answer)]


def usage_of(usage: dict[str, Any]) -> dict[str, int] | None:
    """Tokens of a turn, in our names."""
    names = {"inputTokens": "inputTokens", "outputTokens": "outputTokens", "cacheReadTokens": "cachedInputTokens"}
    counted = {name: count(usage.get(theirs)) for name, theirs in names.items()}
    return {name: each for name, each in counted.items() if each is not None} or None
