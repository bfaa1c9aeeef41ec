"""The benchmark of starts, small: each of them is measured beside its peers."""

import sys
from pathlib import Path
from random import Random

from bench.starting import Installed
from bench.starts import ALONE, BARE_APP, NOTHING, starts


async def test_commands_servers_and_sandboxes_start_and_are_measured(tmp_path: Path) -> None:
    installed = Installed(tmp_path, Path(sys.executable).parent)
    figures = await starts(installed, tmp_path, ["trusted"], rounds=1, rng=Random(1))
    assert [(figure.claim, figure.peer) for figure in figures] == [
        ("holdfast --help", f"{NOTHING} + 100 ms"),
        ("holdfast --help", NOTHING),
        ("holdfast --help, CPU", NOTHING),
        ("holdfast serve until /health", f"{NOTHING} + 500 ms"),
        ("holdfast serve until /health", BARE_APP),
        ("holdfast serve until /health, CPU", BARE_APP),
        ("trusted sandbox, from message to an agent that reads", f"{ALONE} + 150 ms"),
        ("trusted sandbox, from message to an agent that reads", ALONE),
        ("trusted sandbox, from message to an agent that reads, CPU", ALONE),
    ]
    for figure in figures:
        assert figure.less_is_better
        assert figure.ours > 0
        assert figure.theirs > 0
