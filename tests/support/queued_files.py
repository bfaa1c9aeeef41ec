"""A plugin of pytest: runs one test file after another, each taken from a queue that other processes take from, too.

    python -m pytest -p tests.support.queued_files --queue FILE

The queue is a file with a line for each test file. Fixtures of a whole run live until the queue is empty.
"""

import fcntl
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

PLACES = pytest.StashKey[dict[Path, pytest.Item | pytest.Collector]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--queue", type=Path, required=True, help="a file that names test files, one in a line")


def take(queue: Path) -> str | None:
    """The next file, which nobody else gets; None if there is no more."""
    with queue.open("r+") as lines:
        fcntl.flock(lines, fcntl.LOCK_EX)
        first, _, rest = lines.read().partition("\n")
        lines.seek(0)
        lines.write(rest)
        lines.truncate()
    return first or None


def pytest_collection(session: pytest.Session) -> bool:
    """Only where each file is, among folders that have fixtures of their own. It is imported when it is taken."""
    places = session.perform_collect(_all(session.config.getoption("--queue")), genitems=False)
    session.stash[PLACES] = {place.path: place for place in places}
    return True


def _all(queue: Path) -> list[str]:
    with queue.open() as lines:
        fcntl.flock(lines, fcntl.LOCK_SH)
        return lines.read().splitlines()


def pytest_runtestloop(session: pytest.Session) -> bool:
    """As pytest's own, but for where the tests come from. Which test is next is known when one ends: so a fixture that
    both use stays."""
    items = chain(_items(session), [None])
    item = next(items)
    while item is not None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=(following := next(items)))
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


def _items(session: pytest.Session) -> Iterator[pytest.Item]:
    """The tests of one file after another."""
    config = session.config
    while file := take(config.getoption("--queue")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # as in pytest's own collection here
            items = list(session.genitems(session.stash[PLACES][config.invocation_params.dir / file]))
        config.hook.pytest_collection_modifyitems(session=session, config=config, items=items)
        session.testscollected += len(items)
        yield from items


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Others may have been quicker."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
