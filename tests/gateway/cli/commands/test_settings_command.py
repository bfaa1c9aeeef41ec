"""`holdfast settings`: what the gateway goes by, and who said so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.settings import BUCKET_NAMES, KNOWN
from tests.support.gateway import PASSED_ON, REPOSITORY

SECRETS = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210", "geheim22")


def run(place: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    base = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "gateway", *words]
    return subprocess.run(command, env=base | environ, cwd=place, capture_output=True, text=True, timeout=60)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    file = tmp_path / "holdfast.toml"
    file.write_text(f'port = 9000\napi_token = "{SECRETS[0]}"\nstore = "postgresql://u:{SECRETS[2]}@h/db"\n')
    file.chmod(0o600)
    return tmp_path


def test_every_setting_is_listed_with_its_value_and_where_that_comes_from(place: Path) -> None:
    shown = run(place, "settings", "--json", HOLDFAST_PORT="9001", HOLDFAST_JWT_SECRET=SECRETS[1])
    assert shown.returncode == 0, shown.stderr
    found = {each["setting"]: each for each in json.loads(shown.stdout)}
    assert set(found) == {*KNOWN, *BUCKET_NAMES}
    assert found["HOLDFAST_PORT"] == {
        "setting": "HOLDFAST_PORT",
        "value": "9001",
        "from": {"kind": "environment", "name": "HOLDFAST_PORT"},
        "default": "8080",
        "docs": "the port to listen on",
    }
    file = {"kind": "file", "name": "store", "file": str(place / "holdfast.toml"), "line": 3}
    assert found["HOLDFAST_STORE"]["from"] == file
    assert found["HOLDFAST_API_TOKEN"]["value"] == found["HOLDFAST_JWT_SECRET"]["value"] == "set"
    assert found["HOLDFAST_SLEEP_AFTER"]["from"] == {"kind": "default"}
    assert not any(secret in shown.stdout for secret in SECRETS)


def test_the_table_says_the_same_in_columns(place: Path) -> None:
    shown = run(place, "settings")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "FROM", "DEFAULT"]
    (port,) = [line for line in lines if line.startswith("HOLDFAST_PORT ")]
    assert port.split()[1:6] == ["9000", "holdfast.toml,", "line", "1", "8080"]
    assert port.endswith("the port to listen on")
    assert not any(secret in shown.stdout for secret in SECRETS)


def test_a_platforms_port_is_named_where_it_decides(place: Path) -> None:
    lines = {line.split()[0]: line.split()[1:4] for line in run(place, "settings", PORT="6666").stdout.splitlines()}
    assert lines["HOLDFAST_HOST"] == ["0.0.0.0", "environment", "(PORT)"]
    assert lines["HOLDFAST_PORT"] == ["6666", "environment", "(PORT)"]


@pytest.mark.parametrize(
    "words",
    [
        ("serve",),
        ("doctor",),
        ("settings",),
        ("migrate",),
        ("backup", "x"),
        ("token", "--user", "u", "--email", "e"),
        ("sessions", "list"),
        ("chat",),
        ("attach", "s"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_reads_the_file_and_refuses_a_wrong_one(place: Path, words: tuple[str, ...]) -> None:
    (place / "holdfast.toml").write_text("prot = 1\n")
    shown = run(place, *words)
    assert shown.returncode == 2
    assert shown.stderr == "holdfast: holdfast.toml, line 1: prot is no setting; did you mean port?\n"
    assert shown.stdout == ""


def test_doctor_counts_what_comes_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('port = 0\nlocal_level = "trusted"\n')
    found = json.loads(run(tmp_path, "doctor", "--json", HOLDFAST_LOG_LEVEL="debug").stdout)["checks"]
    assert found[0]["name"] == "settings"
    assert found[0]["told"] == "2 from holdfast.toml, 1 from the environment"
