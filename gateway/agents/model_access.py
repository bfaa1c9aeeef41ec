"""The variables and home files that lead a sandbox's programs to models through the proxy. Pure.

The proxy answers at `http://127.0.0.1:3128/<provider>` on the sandbox's own loopback and adds the real key, so programs
get a placeholder. All known agents get their settings, whichever the session has: people start the others in a
terminal. A provider whose variables the session, or the operator, has set is left as it is. A file is written only if
there is none, so people's changes stay.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PROXY = "http://127.0.0.1:3128"
PLACEHOLDER = "held-by-holdfast"  # it opens nothing
CODEX_IS_OURS = "HOLDFAST_CODEX_CONFIG"  # in the environment: config.toml of the home, if there is one, may be ours
# By provider: the variables that lead to the proxy, and those with which a user has set another key or address.
_VARIABLES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "anthropic": (
        {"ANTHROPIC_BASE_URL": f"{PROXY}/anthropic", "ANTHROPIC_AUTH_TOKEN": PLACEHOLDER},
        ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    ),
    "openai": ({"OPENAI_BASE_URL": f"{PROXY}/openai/v1", "OPENAI_API_KEY": PLACEHOLDER}, ()),
    "google": (
        {"GOOGLE_GEMINI_BASE_URL": f"{PROXY}/google", "GEMINI_API_KEY": PLACEHOLDER},
        ("GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"),
    ),
    "openrouter": ({"OPENROUTER_API_KEY": PLACEHOLDER}, ()),
}
# Where opencode and pi look for each, below the proxy's address of it.
_OPENCODE = {"anthropic": "/v1", "openai": "/v1", "google": "/v1beta", "openrouter": "/v1"}
_PI = {"anthropic": "", "openai": "/v1", "google": "/v1beta", "openrouter": "/v1"}
_CODEX = f"""\
# Written by Holdfast: the key is put in outside of this sandbox. A file of your own stays as it is.
model_provider = "holdfast"
check_for_update_on_startup = false

[model_providers.holdfast]
name = "OpenAI"
base_url = "{PROXY}/openai/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """`files` are below HOME, and written where there are none. Nothing here is secret."""

    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def model_access(providers: Iterable[str], given: Collection[str] = ()) -> ModelAccess:
    """For a session whose keys are those of `providers`. `given` are the names of the variables that it has."""
    led = [name for name in _VARIABLES if name in set(providers) and not _is_given(name, given)]
    env: dict[str, str] = {}
    for name in led:
        env |= _VARIABLES[name][0]
    files: dict[str, Any] = {}
    if led:
        # Its own models are at a host of their own: it would begin with one of them.
        opencode = {"disabled_providers": ["opencode"], "provider": {name: _opencode(name) for name in led}}
        env["OPENCODE_CONFIG_CONTENT"] = json.dumps(opencode)
        files[".pi/models.json"] = {"providers": {name: _pi(name) for name in led}}
    if "google" in led:
        env["GEMINI_DEFAULT_AUTH_TYPE"] = "gemini-api-key"
        files[".gemini/settings.json"] = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    texts = {path: json.dumps(content, indent=2) for path, content in files.items()}
    if "openai" in led:
        env[CODEX_IS_OURS] = "1"
        texts[".codex/config.toml"] = _CODEX
    return ModelAccess(env, texts)


def _is_given(provider: str, given: Collection[str]) -> bool:
    variables, others = _VARIABLES[provider]
    return any(name in given for name in (*variables, *others))


def _opencode(provider: str) -> dict[str, Any]:
    return {"options": {"baseURL": f"{PROXY}/{provider}{_OPENCODE[provider]}", "apiKey": PLACEHOLDER}}


def _pi(provider: str) -> dict[str, Any]:
    return {"baseUrl": f"{PROXY}/{provider}{_PI[provider]}", "apiKey": PLACEHOLDER}
