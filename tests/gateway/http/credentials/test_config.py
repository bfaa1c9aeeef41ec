"""`/api/config` and the configuration of sessions, down to the files in an agent's home."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.agents.catalogue import KNOWN
from tests.support.gateway import Gateway
from tests.support.waiting import until

CONFIG = "/api/config"
KEY = "sk-canary-0123456789-abcdefghij"
AGENT = {"type": "agent", "name": "helper", "extension": "md", "content": "help"}


def pretend_installed(directory: Path, name: str = "claude-code") -> None:
    """A program in the place of an agent that reads what it is told, and says nothing."""
    version = KNOWN[name].version
    place = directory / name / version
    place.mkdir(parents=True)
    (place / "run").write_text("#!/bin/sh\nexec cat >/dev/null\n")
    (place / "run").chmod(0o755)
    (place / "installed.json").write_text('{"program": "run", "libc": ""}')
    (directory / name / "current").symlink_to(version)


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    where = tmp_path_factory.mktemp("config")
    pretend_installed(where / "agents")
    async with Gateway(where / "data", AGENTS_DIR=where / "agents") as running:
        yield running


@pytest.fixture
async def ada(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with gateway.http() as client:
        yield client


async def test_it_is_kept_shown_and_has_the_same_hash_however_it_is_written(ada: httpx.AsyncClient) -> None:
    assert (await ada.get(CONFIG)).json()["setAt"] is None
    body = {"settings": {"model": "m", "a": {"b": 1}}, "agents_md": "be kind", "files": [AGENT]}
    kept = await ada.put(CONFIG, json=body)
    assert kept.status_code == 200, kept.text
    shown = (await ada.get(CONFIG)).json()
    assert {name: shown[name] for name in body} == body
    assert shown == {**kept.json(), "credentials": []}
    again = await ada.put(CONFIG, content=json.dumps({name: body[name] for name in reversed(body)}, indent=4))
    assert again.json()["config_hash"] == shown["config_hash"]
    other = await ada.put(CONFIG, json={"agents_md": "be quick"})
    assert other.json()["config_hash"] != shown["config_hash"]
    assert (await ada.get(CONFIG)).json()["settings"] == {}


async def test_keys_in_the_settings_go_into_the_vault(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    settings = {"model": "m", "provider": {"openai": {"options": {"apiKey": KEY, "baseURL": "u"}}}}
    kept = await ada.put(CONFIG, json={"settings": settings})
    assert kept.json()["credentials"] == ["openai"]
    assert kept.json()["settings"] == {"model": "m", "provider": {"openai": {"options": {"baseURL": "u"}}}}
    assert KEY not in kept.text + (await ada.get(CONFIG)).text + gateway.log
    listed = (await ada.get("/api/credentials")).json()["credentials"]
    assert [(each["provider"], each["type"]) for each in listed] == [("openai", "api")]
    for bad in ({"nobody": {"options": {"apiKey": KEY}}}, {"openai": {"options": {"apiKey": f"{KEY} x"}}}):
        refused = await ada.put(CONFIG, json={"settings": {"provider": bad}})
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_member")
        assert KEY not in refused.text
    everything = b"".join(path.read_bytes() for path in gateway.data_dir.rglob("*") if path.is_file())
    assert KEY.encode() not in everything


async def test_it_is_its_users_alone(gateway: Gateway, ada: httpx.AsyncClient) -> None:
    await ada.put(CONFIG, json={"agents_md": "ada's"})
    async with gateway.http(gateway.bearer("eva")) as eva, gateway.http(gateway.admin) as admin:
        assert (await eva.get(CONFIG)).json()["agents_md"] == ""
        for answer in (await eva.get(f"{CONFIG}?userId=ada"), await eva.put(f"{CONFIG}?userId=ada", json={})):
            assert (answer.status_code, answer.json()["code"]) == (403, "not_your_user")
        assert (await admin.get(CONFIG)).status_code == 400
        assert (await admin.get(f"{CONFIG}?userId=ada")).json()["agents_md"] == "ada's"


@pytest.mark.parametrize(
    "body",
    [
        {"other": 1},
        {"settings": []},
        {"agents_md": 5},
        {"agents_md": "a\0b"},
        {"files": [{**AGENT, "name": "../../.bashrc"}]},
        {"files": [{**AGENT, "name": "a\0"}]},
        {"files": [{**AGENT, "type": ".."}]},
        {"files": [AGENT, AGENT]},
        {"files": [{**AGENT, "mode": 0o777}]},
        {"agents_md": "x" * 200_000},
    ],
)
async def test_what_is_none_is_refused_and_changes_nothing(ada: httpx.AsyncClient, body: dict[str, Any]) -> None:
    before = (await ada.get(CONFIG)).json()
    assert (await ada.put(CONFIG, json=body)).status_code == 400
    created = await ada.post("/api/sandboxes/refused", json={"config": body, "agent": ["cat"]})
    assert created.status_code == 400
    assert (await ada.get(CONFIG)).json() == before
    assert (await ada.get("/api/sandboxes/refused")).status_code == 404


async def test_an_agent_gets_its_users_and_over_it_its_sessions_and_a_change_a_new_process(
    gateway: Gateway, ada: httpx.AsyncClient
) -> None:
    await ada.put(CONFIG, json={"settings": {"model": "m"}, "agents_md": "be kind", "files": [AGENT]})
    config = {"settings": {"claude-code": {"verbose": True}}}
    created = await ada.post("/api/sandboxes/c", json={"agent": "claude-code", "config": config})
    assert created.status_code == 201, created.text
    home = gateway.data_dir / "sandboxes" / "c" / "kept" / "agent" / ".claude"
    await until(lambda: (home / "agents" / "helper.md").exists())
    assert (home / "CLAUDE.md").read_text() == "be kind"
    assert json.loads((home / "settings.json").read_text()) == {"verbose": True}
    incarnation = (await ada.get("/api/sandboxes/c")).json()["incarnation"]
    await ada.put(CONFIG, json={"agents_md": "be quick"})
    again = await ada.post("/api/sandboxes/c/wake", json={"config": {"agents_md": "this session is slow"}})
    assert again.status_code == 200, again.text

    async def changed() -> bool:
        await ada.post("/api/sandboxes/c/wake")
        return (home / "CLAUDE.md").read_text() == "this session is slow"

    await until(changed)
    assert not (home / "agents" / "helper.md").exists()
    assert (await ada.get("/api/sandboxes/c")).json()["incarnation"] == incarnation
    refused = await ada.post(
        "/api/sandboxes/c/wake", json={"config": {"settings": {"provider": {"openai": {"options": {"apiKey": KEY}}}}}}
    )
    assert (refused.status_code, KEY in refused.text) == (400, False)


async def test_what_was_answered_200_is_there_after_kill_9(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        async with gateway.http() as ada:
            kept = (await ada.put(CONFIG, json={"agents_md": "be kind"})).json()
        await gateway.kill()
        await gateway.start()
        async with gateway.http() as ada:
            assert (await ada.get(CONFIG)).json() == kept
