"""What a failing test says of itself: the seeds it took, in its report, and one line in the file that
HOLDFAST_TEST_FAILURES names, at once, so that a run that is killed has told what it knew. tests/conftest.py has these
hooks; `make stress` reads the file."""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.size import TAKEN


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
        why = report.longreprtext.strip().splitlines()
        errors = [line.removeprefix("E").strip() for line in why if line.startswith("E ")] or why[-1:]
        _note(failed=item.nodeid, when=report.when, seeds=sorted(set(TAKEN)), why=" ".join(errors[:1])[:300])
    return report


def _note(**members: Any) -> None:
    if (path := os.environ.get("HOLDFAST_TEST_FAILURES")) is not None:
        with Path(path).open("a") as notes:
            notes.write(json.dumps(members) + "\n")
