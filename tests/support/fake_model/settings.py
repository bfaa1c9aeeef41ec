"""How agents are told to ask the fake model, where that takes more than two variables."""

from typing import Any


def opencode_config(address: str, key: str) -> dict[str, Any]:
    """The value of OPENCODE_CONFIG_CONTENT."""
    known = {"m1": {"name": "m1", "reasoning": True, "limit": {"context": 200_000, "output": 8000}}}
    fake = {"npm": "@ai-sdk/openai", "options": {"baseURL": f"{address}/v1", "apiKey": key}, "models": known}
    return {"model": "fake/m1", "small_model": "fake/m1", "provider": {"fake": fake}}
