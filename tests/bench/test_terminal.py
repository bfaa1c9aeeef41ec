"""The pipe that no gateway in Python can beat passes a terminal's bytes on."""

from pathlib import Path

import pytest

from bench.processes import UNDER_TEST, Program
from bench.terminal import OPENING
from bench.terminal_load import Load, NoCompiler, StandIn, Target, compiled


def test_the_pipe_passes_on_and_its_cpu_is_told(tmp_path: Path) -> None:
    try:
        program = compiled()
    except NoCompiler:
        pytest.skip("there is no C compiler")
    requests = tmp_path / "requests"
    requests.write_text("/\n" * 2)
    with (
        StandIn(program, tmp_path / "bridge.sock", tmp_path / "standin.log") as standin,
        Program("pipe", str(standin.socket), core=UNDER_TEST, log=tmp_path / "pipe.log") as pipe,
    ):
        counted = Load(program).in_flight(Target(pipe.port, requests, OPENING, (pipe.pid,)), 2, 64, 1, 0.3)
    assert counted.messages > 0
    assert counted.cpu_seconds > 0
