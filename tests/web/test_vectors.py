"""The vectors of `tests/vectors/` bind both clients: one that is changed on purpose fails the Python client and the
TypeScript client. That both pass with the vectors as they are is said by the clients' own tests.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import NODE
from tests.support.vectors import RUNNERS, VECTORS, cases, check

CLIENT = Path(__file__).parents[2] / "web/client"


def another(value: Any) -> Any:
    return "end" if value != "end" else "at once"


def turned(found: list[Any], name: str, change: Callable[[Any], Any]) -> None:
    """Change the last member of that name, in a case or in one of its steps."""
    places = [step for case in found for step in case.get("steps", [case]) if name in step]
    places[-1][name] = change(places[-1][name])


CHANGES: dict[str, Callable[[list[Any]], None]] = {
    "close_codes.json": lambda found: turned(found, "then", another),
    "connections.json": lambda found: turned(found, "then", another),
    "nacks.json": lambda found: turned(found, "again", lambda value: "paused" if value != "paused" else "never"),
    "resumes.json": lambda found: turned(found, "position", lambda value: {**value, "offset": "77"}),
    "chats.json": lambda found: turned(found, "sends", lambda value: [*value, {"type": "message", "cid": "more"}]),
    "outbox.json": lambda found: turned(found, "goesOn", lambda value: not value),
    "agents.json": lambda found: turned(found, "agent", lambda value: {**value, "model": "another"}),
    "terminals.json": lambda found: turned(found, "events", lambda value: [*value, {"event": "expiring"}]),
}


def test_every_file_is_known_to_the_runner_and_is_changed_here() -> None:
    assert {path.name for path in VECTORS.glob("*.json")} == set(RUNNERS) == set(CHANGES)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    for name, change in CHANGES.items():
        found = cases(name)
        change(found)
        (folder / name).write_text(json.dumps(found))
    return folder


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_vector_fails_the_python_client(name: str, wrong: Path) -> None:
    with pytest.raises(AssertionError, match=name):
        check(name, wrong)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(NODE), "--test", "--test-reporter=tap", "test/vectors.test.ts"]
    env = os.environ | {"HOLDFAST_TEST_VECTORS": str(folder)}
    return subprocess.run(command, cwd=CLIENT, env=env, capture_output=True, text=True, timeout=600)


def test_a_changed_vector_fails_the_typescript_client(wrong: Path) -> None:
    done = run(wrong)
    assert done.returncode != 0
    failed = {line.partition("vectors: ")[2] for line in done.stdout.splitlines() if line.startswith("not ok")}
    assert failed == set(CHANGES), done.stdout


def test_a_file_that_no_runner_knows_fails_the_typescript_client(tmp_path: Path) -> None:
    for path in VECTORS.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert run(tmp_path).returncode == 0
    (tmp_path / "more.json").write_text("[]")
    done = run(tmp_path)
    assert done.returncode != 0
    assert "not ok 1 - every file of vectors has its runner" in done.stdout
