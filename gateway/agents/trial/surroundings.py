"""The variables and home files that make each agent use the built-in model. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.agents.trial.answers import MODEL

KEY = "trial-key"
_CODEX = """\
model = "{model}"
model_provider = "trial"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.trial]
name = "Trial"
base_url = "{address}/v1"
env_key = "TRIAL_KEY"
wire_api = "responses"
"""


@dataclass(frozen=True, slots=True)
class TrialSurroundings:
    """`files` are below HOME."""

    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)


def surroundings(name: str, address: str) -> TrialSurroundings:
    """For the agent of that name, with a model at `address`."""
    return AGENTS[name](address)


def _claude(address: str) -> TrialSurroundings:
    return TrialSurroundings({"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": KEY})


def _codex(address: str) -> TrialSurroundings:
    config = _CODEX.format(model=MODEL, address=address)
    return TrialSurroundings({"TRIAL_KEY": KEY}, {".codex/config.toml": config})


def _pi(address: str) -> TrialSurroundings:
    models = [{"id": MODEL, "contextWindow": 200_000, "maxTokens": 8000}]
    provider = {"baseUrl": f"{address}/v1", "api": "openai-completions", "apiKey": KEY, "models": models}
    settings = {"defaultProvider": "trial", "defaultModel": MODEL}
    files = {".pi/models.json": {"providers": {"trial": provider}}, ".pi/settings.json": settings}
    return TrialSurroundings({}, {path: json.dumps(content) for path, content in files.items()})


def _opencode(address: str) -> TrialSurroundings:
    options = {"baseURL": f"{address}/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {MODEL: {}}}
    config = {"model": f"trial/{MODEL}", "provider": {"trial": provider}}
    return TrialSurroundings({"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _gemini(address: str) -> TrialSurroundings:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "model": {"name": "gemini-2.5-flash"},  # left to itself it asks the model which model to ask, again and again
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": address}
    return TrialSurroundings(env, {".gemini/settings.json": json.dumps(settings)})


AGENTS: Mapping[str, Callable[[str], TrialSurroundings]] = {
    "claude-code": _claude,
    "codex": _codex,
    "pi": _pi,
    "opencode": _opencode,
    "gemini": _gemini,
}
