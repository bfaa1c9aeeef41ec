"""The benchmark of containers, small: each figure is measured beside its peer."""

from pathlib import Path
from random import Random

import pytest

from bench import __main__ as bench
from bench import containers
from bench.containers import BARE, COMMAND, ECHO, ENGINE, FLOOD, LOCAL, MEMORY, START, STARTS, costs
from sandbox.providers.container.kits import Kits
from tests.support.engine import DockerEngine


async def test_starts_messages_memory_and_commands_are_measured(
    docker_engine: DockerEngine, kits: Kits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, few in (("ALIKE", 0), ("ECHOES", 10), ("COMMANDS", 2)):
        monkeypatch.setattr(containers, name, few)
    figures = await costs(docker_engine, tmp_path, rounds=1, crowds=1, seconds=0.1, rng=Random(1), at_once=2, kits=kits)
    assert [(figure.claim, figure.peer) for figure in figures] == [
        (START, BARE),
        (STARTS, BARE),
        (ECHO, LOCAL),
        (FLOOD, LOCAL),
        (MEMORY, f"{LOCAL} + 16 MiB"),
        (MEMORY, LOCAL),
        (COMMAND, ENGINE),
    ]
    for figure in figures:
        assert figure.ours > 0, figure
        assert figure.theirs > 0, figure


async def test_where_no_engine_can_run_it_says_so_in_one_line_and_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(containers, "whats_missing", lambda *programs: "dockerd not installed")
    found = await bench.run(["containers"], quick=True, quiet=False)
    assert "containers" in found.left_out
    assert found.claims == {}
    assert "Not measured here: dockerd not installed" in capsys.readouterr().out
