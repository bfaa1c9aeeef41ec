"""The README's way to an answer of Claude Code: its lines, as they are printed, over the fake model."""

import re
from pathlib import Path

from tests.e2e.test_readme import README, here, run
from tests.support.gateway import Gateway

SECTION = README.partition("## Claude Code, and other agents\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^    (\.venv/bin/holdfast .*)$", SECTION, re.MULTILINE)
ANSWER = "Hello from the fake model."


async def test_its_commands_lead_to_an_answer(agents_dir: Path, model: str, tmp_path: Path) -> None:
    assert len(COMMANDS) == 4
    where = tmp_path / "providers.toml"  # nothing but the model's address is different here
    where.write_text(f'[anthropic]\norigin = "{model}"\n')
    settings = {"AGENTS_DIR": agents_dir, "LOCAL_LEVEL": "contained", "PROVIDERS_FILE": where}
    async with Gateway(tmp_path / "data", **settings) as gateway:
        script = "\n".join(["export ANTHROPIC_API_KEY=good", *(here(command, gateway) for command in COMMANDS)])
        assert ANSWER in await run(script, gateway, "Hello\n", until=(ANSWER.encode(),))
