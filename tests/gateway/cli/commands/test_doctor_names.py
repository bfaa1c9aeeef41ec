"""What `holdfast doctor` says to people whose variables are named as another system names them."""

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from gateway.cli.commands.doctor_names import THEIRS, check_names
from gateway.config.loading import load_settings
from gateway.config.settings import KNOWN, Settings
from tests.support.gateway import PASSED_ON
from tests.support.launcher import launch

PAGE = Path(__file__).parents[4] / "docs/coming-from.md"


@pytest.mark.parametrize("theirs", THEIRS)
def test_their_name_alone_is_answered_with_ours_and_no_value(theirs: str) -> None:
    (found,) = check_names(Settings(), {theirs: "a value of theirs"})
    assert (found.name, found.state) == ("names", "warn")
    assert f"{theirs} is set" in found.told
    assert THEIRS[theirs][0] in found.told
    assert THEIRS[theirs][0] in found.advice
    assert "a value" not in found.told + found.advice


def test_nothing_is_said_where_ours_is_set_or_theirs_is_empty() -> None:
    both = {"JWT_SECRET": "theirs", "HOLDFAST_JWT_SECRET": "o" * 32}
    assert check_names(load_settings(both), both) == []
    assert check_names(load_settings({"HOLDFAST_STORE": "https://api.example.com"}), {"API_BASE_URL": "x"}) == []
    assert check_names(Settings(), {"JWT_SECRET": ""}) == []


async def test_the_command_says_it(tmp_path: Path) -> None:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    ours = {"HOLDFAST_DATA_DIR": str(tmp_path / "data"), "HOLDFAST_LOCAL_LEVEL": "trusted", "HOLDFAST_PORT": "0"}
    process = await launch(
        "doctor", "--json", stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=base | ours | {"RELAY_SECRET": "theirs"},
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    (found,) = [check for check in json.loads(out)["checks"] if check["name"] == "names"]
    assert found["advice"] == 'HOLDFAST_RELAY_SECRET="$RELAY_SECRET"'


def test_the_page_for_people_who_come_from_elsewhere_has_every_name() -> None:
    rows = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| `(HOLDFAST_[A-Z_]+)`", PAGE.read_text(), re.MULTILINE))
    ours = {theirs: ours for theirs, (ours, _) in THEIRS.items()}
    assert {theirs: rows.get(theirs) for theirs in ours} == ours
    assert set(ours.values()) <= set(KNOWN)
