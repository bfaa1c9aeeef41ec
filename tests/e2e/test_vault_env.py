"""Sessions and the vault: what ends needs_env, and what a session says of a credential that cannot be used."""

from pathlib import Path
from typing import Any

from tests.support.gateway import Gateway
from tests.support.waiting import until

KEY = "sk-canary-0123456789-abcdefghij"


async def post(gateway: Gateway, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    async with gateway.http() as ada:
        answer = await ada.post(f"/api/sandboxes/{path}", json=body or {})
    assert answer.is_success, answer.text
    described: dict[str, Any] = answer.json()
    return described


async def put(gateway: Gateway, provider: str) -> None:
    async with gateway.http() as ada:
        assert (await ada.put(f"/api/credentials/{provider}", json={"type": "api", "key": KEY})).status_code == 200


async def status(gateway: Gateway, session_id: str) -> dict[str, Any]:
    async with gateway.http() as ada:
        found: dict[str, Any] = (await ada.get(f"/api/sandboxes/{session_id}/status")).json()
    return found


async def asleep_after_a_restart(gateway: Gateway, **sessions: dict[str, str]) -> None:
    for session_id, env in sessions.items():
        await post(gateway, session_id, {"envVars": env, "agent": ["cat"]})
        await post(gateway, f"{session_id}/sleep")
    await gateway.kill()
    await gateway.start()


async def test_a_session_whose_keys_are_in_the_vault_wakes_after_a_restart(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await put(gateway, "anthropic")
        await asleep_after_a_restart(
            gateway,
            covered={"ANTHROPIC_API_KEY": KEY},
            another={"OPENAI_API_KEY": KEY},
            more={"ANTHROPIC_API_KEY": KEY, "DATABASE_URL": "x"},
        )
        assert (await post(gateway, "covered/wake"))["status"] == "running"
        for session_id in ("another", "more"):
            assert (await post(gateway, f"{session_id}/wake"))["status"] == "needs_env"
        await put(gateway, "openai")
        assert (await post(gateway, "another/resume"))["status"] == "running"
        assert (await post(gateway, "more/resume"))["status"] == "needs_env"


async def test_a_message_wakes_it_too_and_no_value_is_in_its_environment(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await put(gateway, "anthropic")
        await asleep_after_a_restart(gateway, talks={"ANTHROPIC_API_KEY": KEY})
        async with gateway.chat("talks") as socket:
            await socket.send('{"type":"message","cid":"1","content":"hello"}')

            async def running() -> bool:
                return str((await status(gateway, "talks"))["status"]) == "running"

            await until(running)


async def test_a_credential_that_cannot_be_opened_is_told_in_the_session(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "data") as gateway:
        await put(gateway, "anthropic")
        await post(gateway, "s", {"agent": ["cat"]})
        assert (await status(gateway, "s"))["needsCredentials"] == []
        await gateway.kill()
        (gateway.data_dir / "secrets" / "vault_key").unlink()
        await gateway.start()
        (needed,) = (await status(gateway, "s"))["needsCredentials"]
        assert needed["provider"] == "anthropic"
        assert "another vault key" in needed["problem"]
        await put(gateway, "anthropic")
        assert (await status(gateway, "s"))["needsCredentials"] == []
