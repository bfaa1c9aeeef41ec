"""The agents of the contract scenario: how each is chosen, led to the fake model, and told what to do."""

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import plain_agent
from tests.support.fake_model.settings import opencode_config

PROMPTS = {"say": "@@say {}", "run": "@@run {}", "ask": "@@ask", "hang": "@@hang {}", "recall": "@@recall"}
TO_THE_DEMO = {"say": "{}", "run": "/permission {}", "ask": "/ask Which colour?", "hang": "/long 600", "recall": "{}"}
MODEL, MISSING = "m1", "missing"


@dataclass(frozen=True, slots=True)
class Model:
    """The fake model as an agent is to use it. Without a `key` the agent is given none."""

    address: str
    key: str = "good"
    name: str = MODEL

    @property
    def variables(self) -> dict[str, str]:
        keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
        addresses = {
            "ANTHROPIC_BASE_URL": self.address,
            "ANTHROPIC_MODEL": self.name,
            "OPENAI_BASE_URL": f"{self.address}/v1",
            "GOOGLE_GEMINI_BASE_URL": self.address,
            "OPENCODE_CONFIG_CONTENT": json.dumps(opencode_config(self.address, self.key, self.name)),
        }
        return {**addresses, **dict.fromkeys(keys if self.key else (), self.key)}

    @property
    def files(self) -> dict[str, str]:
        """What pi and Gemini are told by files of their home alone."""
        models = [{"id": self.name, "contextWindow": 200_000, "maxTokens": 8000, "input": ["text", "image"]}]
        fake = {"baseUrl": f"{self.address}/v1", "api": "openai-responses", "apiKey": self.key, "models": models}
        gemini = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "telemetry": {"enabled": False},
            # Left to itself it asks the model which model to ask.
            "model": {"name": MISSING if self.name == MISSING else "gemini-2.5-flash"},
        }
        files = {".gemini/settings.json": gemini}
        if self.key:
            files[".pi/models.json"] = {"providers": {"fake": fake}}
            files[".pi/settings.json"] = {"defaultProvider": "fake", "defaultModel": self.name}
        return {path: json.dumps(content) for path, content in files.items()}

    def configure(self, home: Path) -> None:
        for path, content in self.files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(content)


@dataclass(frozen=True, slots=True)
class AgentUnderTest:
    """`agent` is what it is called at create. What it lacks is said: `asks`, it has a tool that asks the user; `works`,
    it has a model and tools; `starts_fast`, in about a second; `has_core`, its bridge speaks its words: so it holds
    messages back until a turn is over, goes on with its conversation, and knows when that is gone."""

    name: str
    agent: str | list[str]
    asks: bool = True
    works: bool = True
    starts_fast: bool = True
    has_core: bool = True
    prompts: Mapping[str, str] = field(default_factory=lambda: PROMPTS)

    @property
    def session(self) -> str:
        return re.sub(r"[@.]", "-", self.name)

    def prompt(self, deed: str, what: str = "") -> str:
        return self.prompts[deed].format(what)


PLAIN = ["python3", "-c", inspect.getsource(plain_agent)]
ASKING = """env 'OPENCODE_PERMISSION={"bash": "ask", "edit": "ask"}'"""  # it allows everything unless it is told
OVER_ACP = f"acp:{ASKING} /holdfast-agents/bin/opencode acp"
AGENTS = (
    AgentUnderTest("demo", "demo", works=False, has_core=False, prompts=TO_THE_DEMO),
    AgentUnderTest("plain", PLAIN, has_core=False),
    AgentUnderTest("claude-code", "claude-code"),
    AgentUnderTest("codex", "codex"),
    AgentUnderTest("pi", "pi"),
    AgentUnderTest("pi@0.74.2", "pi@0.74.2"),
    AgentUnderTest("opencode", "opencode", starts_fast=False),
    AgentUnderTest("gemini", "gemini", asks=False, starts_fast=False),
    AgentUnderTest("acp", OVER_ACP, asks=False, starts_fast=False),
)
