"""The settings with which agents use the fake model, if two variables are not enough."""

from typing import Any


def opencode_config(address: str, key: str, model: str = "m1") -> dict[str, Any]:
    """The value of OPENCODE_CONFIG_CONTENT."""
    known = {model: {"name": model, "reasoning": True, "limit": {"context": 200_000, "output": 8000}}}
    fake = {"npm": "@ai-sdk/openai", "options": {"baseURL": f"{address}/v1", "apiKey": key}, "models": known}
    return {"model": f"fake/{model}", "small_model": f"fake/{model}", "provider": {"fake": fake}}
