"""`holdfast credentials`, as people type it, against a running gateway."""

import asyncio
import json
import os
import pty
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.client.login import whoever
from gateway.cli.commands.doctor_vault import check_vault
from gateway.config.settings import SecretStr, Settings
from tests.gateway.vault.test_credential import pem
from tests.support.gateway import PASSED_ON, Gateway
from tests.support.launcher import launch

ME = whoever()[0]
KEY = "sk-canary-0123456789-abcdefghij"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with Gateway(tmp_path_factory.mktemp("credentials") / "data") as running:
        yield running


async def holdfast(
    data: Path, *words: str, given: str = "", typed: str | None = None, **env: str
) -> tuple[int, str, str]:
    """Run `holdfast credentials ...` with stdin, or by a person at a terminal: exit code, stdout, stderr."""
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    keyboard, terminal = pty.openpty() if typed is not None else (-1, subprocess.PIPE)
    try:
        process = await launch(
            "credentials", *words,
            stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=base | {"HOLDFAST_DATA_DIR": str(data)} | env,
        )  # fmt: skip
        if typed is not None:
            os.write(keyboard, typed.encode())
        async with asyncio.timeout(60):
            out, errors = await process.communicate(None if typed is not None else given.encode())
    finally:
        for descriptor in (keyboard, terminal) if typed is not None else ():
            os.close(descriptor)
    assert KEY not in out.decode() + errors.decode()
    return process.returncode or 0, out.decode(), errors.decode()


async def test_from_stdin_a_variable_or_a_person_it_is_kept_and_listed_and_removed(gateway: Gateway) -> None:
    data = gateway.data_dir
    said = (0, f"the credential for openai is kept, for {ME}\n", "")
    assert await holdfast(data, "set", "openai", given=f"{KEY}\n") == said
    assert await holdfast(data, "set", "openai", "--env", "MY_KEY", MY_KEY=KEY) == said
    code, out, _ = await holdfast(data, "set", "gemini", typed=f"{KEY}\n")
    assert (code, out) == (0, f"the credential for google is kept, for {ME}\n")
    code, out, _ = await holdfast(data, "list")
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["PROVIDER", "TYPE"],
        ["google", "api"],
        ["openai", "api"],
    ]
    code, out, _ = await holdfast(data, "list", "--json")
    assert [json.loads(line)["provider"] for line in out.splitlines()] == ["google", "openai"]
    for name in ("openai", "gemini"):
        assert (await holdfast(data, "delete", name))[0] == 0
    code, _, errors = await holdfast(data, "delete", "openai")
    assert (code, "there is no credential" in errors) == (1, True)
    assert "no credentials; there can be some for anthropic" in (await holdfast(data, "list"))[1]


async def test_everybodys_and_another_users(gateway: Gateway) -> None:
    data = gateway.data_dir
    assert "for everybody" in (await holdfast(data, "set", "anthropic", "--everybody", given=KEY))[1]
    assert "for ann" in (await holdfast(data, "set", "openai", "--user", "ann", given=KEY))[1]
    async with gateway.http(gateway.bearer("ann")) as ann:
        found = {
            each["provider"]: each["everybody"] for each in (await ann.get("/api/credentials")).json()["credentials"]
        }
    assert found == {"anthropic": True, "openai": False}
    code, out, _ = await holdfast(data, "delete", "openai", "--token", gateway.token("ann"), "--json")
    assert (code, json.loads(out)) == (0, {"provider": "openai"})
    assert (await holdfast(data, "delete", "anthropic", "--everybody"))[0] == 0


async def test_tokens_and_apps(gateway: Gateway) -> None:
    data = gateway.data_dir
    tokens = json.dumps({"access": KEY, "refresh": "r", "expires": 1_900_000_000_000})
    assert (await holdfast(data, "set", "anthropic", given=tokens))[0] == 0
    assert (await holdfast(data, "set", "github", "--app-id", "123", given=pem()))[0] == 0
    out = (await holdfast(data, "list", "--json"))[1]
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["oauth", "app"]
    assert (await holdfast(data, "rotate"))[1] == "another vault key is in use; 2 credentials are sealed with it\n"
    assert [json.loads(line)["problem"] for line in (await holdfast(data, "list", "--json"))[1].splitlines()] == [
        None
    ] * 2


@pytest.mark.parametrize(
    ("words", "given", "code", "told"),
    [
        (["set", "openai", KEY], "", 2, "never part of the command line"),
        (["set", KEY * 3], "", 2, "no name of a provider"),
        (["set", "openai"], "", 1, "no value was given"),
        (["set", "openai", "--env", "NOT_THERE"], "", 1, "is not set"),
        (["set", "openai"], "x" * 70_000, 1, "longer than"),
        (["set", "openai"], f"{KEY} {KEY}", 1, "key must be"),
        (["set", "openai"], f"{{{KEY}", 1, "is no JSON"),
        (["set", "nobody"], KEY, 1, "there is no such provider; known are"),
        (["set", "openai", "--token", "not-a-jwt"], KEY, 1, "say whose they are"),
        (["set", "openai", "--everybody", "--token", "a.b.c"], KEY, 1, "for the API token"),
        (["list", "--everybody", "--user", "ann"], "", 2, "not allowed with"),
    ],
)
async def test_what_cannot_be_is_said(gateway: Gateway, words: list[str], given: str, code: int, told: str) -> None:
    ended, out, errors = await holdfast(gateway.data_dir, *words, given=given)
    assert (ended, out) == (code, "")
    assert told in errors


async def test_the_doctor_says_whether_the_key_opens_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with Gateway(data) as gateway:
        assert check_vault(Settings(data_dir=data)) == []
        assert (await holdfast(data, "set", "openai", given=KEY))[0] == 0
        await gateway.kill()

    async def vault(**settings: Any) -> tuple[str, str]:
        (found,) = await asyncio.to_thread(check_vault, Settings(data_dir=data, **settings))
        return found.state, f"{found.told} {found.advice}"

    assert (await vault())[0] == "ok"
    another = SecretStr("another-key-" * 4)
    state, told = await vault(vault_key=another)
    assert (state, "still sealed with an older key" in told) == ("warn", True)
    path = data / "secrets" / "vault_key"
    state, told = await vault(vault_key=SecretStr(path.read_text()), vault_key_old=another)
    assert (state, "take it away" in told) == ("warn", True)
    path.chmod(0o644)
    assert (await vault())[0] == "fail"
    path.unlink()
    state, told = await vault()
    assert (state, "Bring that key back" in told) == ("fail", True)
