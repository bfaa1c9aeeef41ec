"""A session without network and without a key talks to its model: gateway, proxy, sandbox, and a provider over TLS."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.agents.trial.answers import SAID
from tests.gateway.egress.origins import ModelOrigin, model_origin
from tests.support.gateway import Gateway
from tests.support.inside import Inside, inside
from tests.support.waiting import until

CANARY = "canary-key-of-the-operator"
BODY = json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 100, "stream": True, "messages": []})
ASK = f"curl -sS $ANTHROPIC_BASE_URL/v1/messages -H \"Authorization: Bearer $ANTHROPIC_AUTH_TOKEN\" -d '{BODY}'"


@pytest.fixture
async def origin(tmp_path: Path) -> AsyncIterator[ModelOrigin]:
    async with model_origin(tmp_path) as origin:
        yield origin


@pytest.fixture
async def gateway(tmp_path: Path, origin: ModelOrigin) -> AsyncIterator[Gateway]:
    lines = f'origin = "https://127.0.0.2:{origin.port}"\nca_file = "{origin.certificate}"\n'
    (file := tmp_path / "providers.toml").write_text(f"[anthropic]\n{lines}[openai]\n{lines}")
    settings = {"LOCAL_LEVEL": "contained", "PROVIDERS_FILE": str(file), "BUDGET_PER_USER": "1"}
    async with Gateway(tmp_path / "data", **settings) as gateway:
        yield gateway


@pytest.fixture
async def within(gateway: Gateway) -> AsyncIterator[Inside]:
    async with inside(gateway.data_dir) as within:
        yield within


async def keep(gateway: Gateway, key: str = CANARY) -> None:
    async with gateway.http() as client:
        answered = await client.put("/api/credentials/anthropic", json={"type": "api", "key": key})
    assert answered.status_code == 200, answered.text


async def got(gateway: Gateway, path: str) -> httpx.Response:
    async with gateway.http(gateway.admin if path == "/metrics" else None) as client:
        return await client.get(path)


async def test_a_session_without_network_or_key_gets_its_answer(
    gateway: Gateway, within: Inside, origin: ModelOrigin
) -> None:
    await keep(gateway)
    made = await gateway.create("first", budget={"tokens": 40})
    assert made["budget"] == {"tokens": 40}
    assert SAID in await within.shell("first", ASK)
    assert origin.asked[0].headers["x-api-key"] == CANARY
    assert "authorization" not in origin.asked[0].headers

    async def spent() -> dict[str, object] | None:
        described = (await got(gateway, "/api/sandboxes/first")).json()
        return described["models"] if described["models"]["requests"] else None

    models = await until(spent)
    assert (models["inputTokens"], models["outputTokens"], models["costUsd"]) == (10, 5, 0.000105)
    today = (await got(gateway, "/api/me")).json()["models"]
    assert (today["today"]["outputTokens"], today["budgetUsd"]) == (5, 1.0)
    for _ in range(2):
        assert SAID in await within.shell("first", ASK)
    refused = json.loads(await within.shell("first", ASK))
    assert "this session's budget is used up: 45 of 40 tokens" in refused["error"]["message"]

    async def counted() -> bool:
        return 'holdfast_model_tokens_total{kind="output",provider="anthropic"} 15.0' in await metrics(gateway)

    await until(counted)
    found = await within.shell(
        "first", f"env; cat /proc/*/environ /proc/*/cmdline; grep -rs {CANARY[:12]} /agent /workspace"
    )
    assert CANARY not in found
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:3128/anthropic" in found


async def metrics(gateway: Gateway) -> str:
    return (await got(gateway, "/metrics")).text


async def test_a_key_counts_from_the_next_request_on(gateway: Gateway, within: Inside, origin: ModelOrigin) -> None:
    await keep(gateway, "one")
    await gateway.create("first")
    assert SAID in await within.shell("first", ASK)
    await keep(gateway, "two")

    async def asked_with_two() -> bool:
        await within.shell("first", ASK)
        return origin.asked[-1].headers["x-api-key"] == "two"

    await until(asked_with_two)
    async with gateway.http() as client:
        assert (await client.delete("/api/credentials/anthropic")).status_code == 200

    async def told() -> bool:
        return "`holdfast credentials set anthropic`" in await within.shell("first", ASK)

    await until(told)


async def test_models_are_reached_while_there_is_no_gateway(
    gateway: Gateway, within: Inside, origin: ModelOrigin
) -> None:
    await keep(gateway)
    await gateway.create("first")
    assert SAID in await within.shell("first", ASK)
    await gateway.kill()
    assert SAID in await within.shell("first", ASK)
    await gateway.start()

    async def spent() -> bool:
        described = (await got(gateway, "/api/sandboxes/first")).json()
        return bool(described["models"]["requests"] == 2)

    await until(spent, "what was spent meanwhile is told")
    assert (gateway.data_dir / "spent.journal").exists()
