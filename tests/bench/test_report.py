"""The page that a run writes, its plots, and the command that does."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import __main__, history, plots, report, results
from bench.figures import Figure, Goal, compare
from bench.processes import REPOSITORY
from bench.results import Claim, Results

COST = compare(
    "CPU <per> message", "usual relay", "us", [3, 3, 4, 5], [2, 2, 2, 2], less_is_better=True, goal=Goal(2.0)
)
RATE = Figure("records & all" * 9, "COPY", "records", 10, 300, note="a note")
FOUND = Results(
    "2026-01-02 03:04 UTC", "abc1234", "this one", False, 0.1, 0.2, left_out=("sync",),
    claims={"relay": Claim("What it costs.", (COST, RATE)), "page": Claim("The page.", failed="OSError: no browser")},
)  # fmt: skip


def test_the_page_has_every_figure_and_says_what_failed(tmp_path: Path) -> None:
    report.write(FOUND, tmp_path / "performance.md")
    page = (tmp_path / "performance.md").read_text()
    assert "| CPU <per> message | 3.5 | 2 (usual relay) | us | 1.75x | 1.50-2.12 | less | at most 2x, met |" in page
    assert "Not measured: OSError: no browser" in page
    assert "abc1234; this one;" in page
    assert "a note" in page
    assert "Not part of this run: sync." in page
    assert "quick look" not in page.lower()
    assert "busy" not in page
    assert sorted(path.name for path in (tmp_path / "performance").iterdir()) == [
        "history.jsonl", "latest.json", "relay.svg",
    ]  # fmt: skip


def test_a_quick_look_and_a_busy_machine_are_told(tmp_path: Path) -> None:
    report.write(replace(FOUND, quick=True, load_before=7.5), tmp_path / "performance.md")
    page = (tmp_path / "performance.md").read_text()
    assert "A quick look" in page
    assert "its load was 7.5 before" in page
    assert "| at most 2x |" in page, "nobody says that a look has met a goal"


def test_a_later_run_says_what_got_worse(tmp_path: Path) -> None:
    report.write(FOUND, tmp_path / "performance.md")
    slower = replace(COST, rounds=tuple((2 * ours, theirs) for ours, theirs in COST.rounds))
    report.write(replace(FOUND, claims={"relay": Claim("What.", (slower,))}), tmp_path / "performance.md")
    page = (tmp_path / "performance.md").read_text()
    assert "- relay: CPU <per> message / usual relay: 1.75x (1.50-2.12) became 3.50x (3.00-4.25), 100% worse" in page
    assert "<path" in (tmp_path / "performance/history.svg").read_text()


def test_a_page_is_made_anew_from_its_json(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    report.write(FOUND, page)
    assert results.read(tmp_path / "performance/latest.json") == FOUND
    before = page.read_text()
    page.write_text("edited")
    report.render(page)
    assert page.read_text() == before
    assert len(history.read(tmp_path / "performance/history.jsonl")) == 1


def test_the_page_in_docs_is_what_its_json_says() -> None:
    """Nobody edits it. To make it anew: python -m bench --render"""
    found = results.read(report.BESIDE / report.LATEST)
    assert report.PAGE.read_text() == report.page(found, history.read(report.BESIDE / report.HISTORY))
    for name, claim in found.claims.items():
        if claim.figures:
            assert (report.BESIDE / f"{name}.svg").read_text() == plots.bars(claim.figures)


@pytest.mark.parametrize(
    "plot",
    [
        plots.bars((COST, RATE)),
        plots.bars((Figure("much", "p", "us", 1000, 1),)),
        plots.bars((Figure("noise", "p", "us", -1, 1),)),
        plots.lines({"a & b": [1.0, None, 2.5], "c": [0.4, 0.5, 0.4]}, ["<first>", "second", "third"]),
        plots.lines({"alone": [1.0]}, ["only"]),
        plots.lines({}, []),
    ],
)
def test_a_plot_is_small_well_formed_and_readable_in_the_dark(plot: str) -> None:
    ElementTree.fromstring(plot)
    assert len(plot) < 10_000
    assert "prefers-color-scheme:dark" in plot
    assert "nan" not in plot


def test_a_plot_has_the_peer_at_one_and_what_is_better_to_its_right() -> None:
    assert 'class="bad"' in plots.bars((COST,))
    assert 'class="good"' in plots.bars((replace(COST, less_is_better=False),))
    for ratio in (1.0, 3.0, 40.0, 5000.0):
        assert plots.bars((Figure("c", "p", "us", ratio, 1),)).count('class="axis"') == 1


def test_compare_prints_what_got_worse_and_ends_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "BESIDE", tmp_path)
    assert __main__.compare(None) == 0
    assert "no earlier run" in capsys.readouterr().out
    line = history.line(FOUND)
    history.add(line, tmp_path / report.HISTORY)
    history.add(line, tmp_path / report.HISTORY)
    assert __main__.compare(None) == 0
    assert "Nothing got worse" in capsys.readouterr().out
    (name, ratio), *_ = line.ratios.items()
    worse = replace(line, commit="later", ratios={name: replace(ratio, ratio=4, low=3.5, high=5)})
    history.add(worse, tmp_path / report.HISTORY)
    assert __main__.compare("abc") == 1
    assert "later of 2026-01-02 03:04 UTC against abc1234" in (said := capsys.readouterr().out)
    assert "129% worse" in said


def test_a_claim_that_fails_is_told_of_and_the_others_are_measured_all_the_same(tmp_path: Path) -> None:
    """In a process of its own: it pins itself to a core."""
    program = """if True:
        import sys, types
        from bench import __main__
        async def fails(*, quick):
            raise OSError("no such peer")
        async def works(*, quick):
            from bench.figures import Figure
            return [Figure("c", "p", "us", 1, 2)]
        for name, run in (("relay", fails), ("page", works)):
            module = types.ModuleType(f"bench.{name}", "What it\\ncosts.\\n\\nMore.")
            module.run = run
            sys.modules[f"bench.{name}"] = module
        sys.argv = ["bench", "relay", "page", "--quick", "--json"]
        sys.exit(__main__.main())
    """
    ended = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    claims = json.loads(ended.stdout)["claims"]
    assert claims["relay"] == {"headline": "What it costs.", "failed": "OSError: no such peer", "figures": []}
    assert claims["page"]["figures"][0]["ratio"] == 0.5
