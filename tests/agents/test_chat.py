"""A real agent in `holdfast chat`, over the fake model: asked, permitted for good, told what to do next, and led."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fake_model.serving import INNER, fake_model
from tests.support.gateway import REPOSITORY, Gateway


@pytest.fixture
async def gateway(agents_dir: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    variables = tmp_path / "variables"
    async with fake_model() as address:
        variables.write_text(f"ANTHROPIC_BASE_URL={address}\nANTHROPIC_API_KEY=good\n")
        variables.chmod(0o600)
        settings = {
            "AGENTS_DIR": agents_dir,
            "NETWORK": "outbound",
            "NETWORK_INNER": INNER,
            "SANDBOX_ENV_FILE": variables,
        }
        async with Gateway(tmp_path / "data", **settings) as running:
            yield running


async def test_an_agent_is_worked_with_line_by_line(gateway: Gateway) -> None:
    argv = [sys.executable, "-m", "gateway", "chat", "--agent", "claude-code", "--user", "ada", "--plain"]
    pipe = asyncio.subprocess.PIPE
    chat = await asyncio.create_subprocess_exec(
        *argv, env=gateway.environment(), cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe
    )
    first = ["@@think it is so", "@@run touch a.txt", "n", "@@run touch b.txt", "a", "@@run touch c.txt"]
    typed = [*first, "@@ask", "2", "/mode plan", "/mode"]
    out, err = (said.decode() for said in await chat.communicate("\n".join(typed).encode() + b"\n"))
    assert chat.returncode == 0, err
    assert "thinks: Let me think about it." in err
    assert "uses Bash: touch a.txt" in err
    assert out.count("Allow it? y/n, or a for always") == 2, "the third is allowed for good"
    assert "it failed: The user said no." in err
    assert "Which colour?" in out
    assert "blue" in out
    assert "tokens: " in err
    assert "mode: plan" in err
    (session,) = re.findall(r"session (\w+)", err)
    async with gateway.http(gateway.bearer()) as ada:
        found = [(await ada.get(f"/files/{session}/{name}.txt")).status_code for name in "abc"]
    assert found == [404, 200, 200]
