"""Which variables a credential of the vault takes the place of. Pure.

Programs look for keys in these. A session that was given one of them, and lost it with its gateway, needs it no more
once the vault has a credential for its provider: the proxy puts that in on the way out.
"""

from collections.abc import Collection

PROVIDER_OF = {
    "ANTHROPIC_API_KEY": "anthropic",
    "ANTHROPIC_AUTH_TOKEN": "anthropic",
    "CLAUDE_CODE_OAUTH_TOKEN": "anthropic",
    "OPENAI_API_KEY": "openai",
    "CODEX_API_KEY": "openai",
    "GEMINI_API_KEY": "google",
    "GOOGLE_API_KEY": "google",
    "GOOGLE_GENERATIVE_AI_API_KEY": "google",
    "OPENROUTER_API_KEY": "openrouter",
    "GITHUB_TOKEN": "github",
    "GH_TOKEN": "github",
    "GITLAB_TOKEN": "gitlab",
}


def providers_of(names: Collection[str]) -> tuple[str, ...]:
    """The providers whose credentials take the place of all of these variables; none if one of them is no key."""
    found = [PROVIDER_OF.get(name) for name in names]
    return tuple(sorted({each for each in found if each is not None})) if None not in found else ()
