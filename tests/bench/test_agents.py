"""The benchmark of agents: what of it runs without any."""

from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import agents
from bench.agents import ABORT, ASLEEP, BYTES, LONG, PARSER, PIPES, PROCESSOR, WARM, of_agent, of_core
from bench.rounds import OURS, Rounds


@pytest.mark.parametrize("core", ["claude-code", "codex", "pi", "acp"])
def test_a_core_is_measured_beside_a_parser(core: str) -> None:
    figure = of_core(core, rounds=2)
    assert (figure.claim, figure.peer) == (f"{core}: {PROCESSOR}", PARSER)
    assert figure.ours > 0
    assert figure.theirs > 0


def test_what_holdfast_adds_is_compared_with_what_it_may_add() -> None:
    found = Rounds()
    for step in (WARM, LONG, ASLEEP, ABORT):
        found.add(step, OURS, 53.0)
        found.add(step, PIPES, 50.0)
    found.add(BYTES, OURS, 330_000.0)
    figures = of_agent("Some agent", found)
    added = next(figure for figure in figures if figure.peer.endswith("+ 5 ms"))
    assert (added.ours, added.theirs) == (53.0, 55.0)
    (bytes_each,) = [figure for figure in figures if BYTES in figure.claim]
    assert bytes_each.ratio == pytest.approx(1.1)


async def test_where_none_is_installed_it_says_so_in_one_line_and_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(agents, "INSTALLED", tmp_path)
    found = await bench.run(["agents"], quick=True, quiet=False)
    assert "agents" in found.left_out
    assert "make agents" in capsys.readouterr().out
