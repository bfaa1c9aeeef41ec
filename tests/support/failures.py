"""A failing test's seeds: in its report, and at once as a line in the file that HOLDFAST_TEST_FAILURES names, so that
a killed run has written them down. tests/conftest.py has these hooks; `make stress` reads the file."""

import json
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.size import TAKEN

INNER = re.compile(r"[ |E]*\| (\w[\w.]*(?:Error|Exception|Exit|Warning|Interrupt)\b.*)")  # in an exception group


def pytest_runtest_logstart(nodeid: str) -> None:
    TAKEN.clear()
    _note(began=nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    _note(ended=nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        if TAKEN:
            report.sections.append(("seed", " ".join(f"HOLDFAST_TEST_SEED={seed}" for seed in sorted(set(TAKEN)))))
        text = report.longreprtext.strip()
        _note(failed=item.nodeid, when=report.when, seeds=sorted(set(TAKEN)), why=_why(text), report=text)
    return report


def _why(report: str) -> str:
    """The error in one line; of a group, the innermost, which stands last."""
    lines = report.splitlines()
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")][:1]
    inner = [found[1] for line in lines if (found := INNER.fullmatch(line))]
    return "".join(inner[-1:] or errors or lines[-1:])[:300]


def _note(**members: Any) -> None:
    if (path := os.environ.get("HOLDFAST_TEST_FAILURES")) is not None:
        with Path(path).open("a") as notes:
            notes.write(json.dumps(members) + "\n")
