"""Agents without network and without a key: the vault has it, the proxy puts it in, and nothing inside knows it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agents.agents import AGENTS, MODEL, AgentUnderTest
from tests.agents.conftest import FORGIVING
from tests.agents.talk import last_answer, talking
from tests.support.gateway import Gateway
from tests.support.inside import inside
from tests.support.launcher import Launcher
from tests.support.waiting import until

CANARY = "canary-good-key-of-the-owner"
PROVIDERS = ("anthropic", "openai", "google")
# Where the key could be: files, environments, arguments, memory. It is written otherwise here, and the process that
# looks leaves itself out.
LOOK = f"""
import glob, os, re
key = bytes.fromhex("{CANARY.encode().hex()}")
for top in ("/agent", "/workspace", "/tmp", "/session", "/holdfast"):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and key in open(path, "rb").read():
                print("FOUND", path)
for process in glob.glob("/proc/[0-9]*"):
    if process == f"/proc/{{os.getpid()}}":
        continue
    try:
        regions = open(f"{{process}}/maps").read().splitlines()
        memory = open(f"{{process}}/mem", "rb", 0)
        said = open(f"{{process}}/environ", "rb").read() + open(f"{{process}}/cmdline", "rb").read()
    except OSError:
        continue
    print("process", said[-40:])
    if key in said:
        print("FOUND", process)
    for region in regions:
        found = re.match("([0-9a-f]+)-([0-9a-f]+) rw", region)
        if not found:
            continue
        start, end = (int(each, 16) for each in found.groups())
        before = b""
        while start < end:
            try:
                memory.seek(start)
                piece = memory.read(min(1 << 20, end - start))
            except (OSError, OverflowError, ValueError):
                break
            if key in before + piece:
                print("FOUND in memory", process)
            if not piece:
                break
            before, start = piece[-64:], start + len(piece)
print("looked")
"""


@pytest.fixture(scope="module")
async def gateway(agents_dir: Path, model: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    directory = tmp_path_factory.mktemp("keyless")
    (file := directory / "providers.toml").write_text("".join(f'[{each}]\norigin = "{model}"\n' for each in PROVIDERS))
    settings = {"AGENTS_DIR": agents_dir, "LOCAL_LEVEL": "contained", "PROVIDERS_FILE": file}
    async with Launcher() as launcher:
        running = Gateway(directory / "data", **settings)
        running.launcher, running.tampering = launcher, FORGIVING
        async with running:
            async with running.http() as ada:
                for provider in PROVIDERS:
                    kept = await ada.put(f"/api/credentials/{provider}", json={"type": "api", "key": CANARY})
                    assert kept.status_code == 200, kept.text
            yield running


@pytest.mark.parametrize(
    "under_test",
    [each for each in AGENTS if each.name not in ("demo", "plain", "pi@0.74.2")],
    ids=lambda each: each.name,
)
async def test_a_turn_needs_neither_network_nor_key(gateway: Gateway, under_test: AgentUnderTest) -> None:
    session = f"keyless-{under_test.session}"
    await gateway.create(session, agent=under_test.agent)
    async with talking(gateway, session) as talk:
        if under_test.name == "codex":  # its own choice of a model makes the fake one think that it names conversations
            await talk.send("start", model=MODEL)
        await talk.turn(under_test.prompt("say", "it works"))
        assert talk.errors == []
        assert not [frame for frame in talk.heard if CANARY in str(frame)]
    assert "it works" in await last_answer(gateway, session)
    async with inside(gateway.data_dir) as within:
        looked = (await within.run(session, "python3", "-c", LOOK, seconds=120)).stdout
    assert looked.strip().endswith("looked"), looked
    assert "process" in looked, "memory was looked at"
    assert "FOUND" not in looked, looked
    async with gateway.http() as ada:

        async def counted() -> bool:  # totals come some seconds after the request
            return bool((await ada.get(f"/api/sandboxes/{session}")).json()["models"]["requests"] >= 1)

        await until(counted, "the turn's requests are counted")
    assert CANARY not in gateway.log
