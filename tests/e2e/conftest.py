"""The front doors that the hostile clients' files share, one of each for a file."""

from collections.abc import Iterator

import pytest

from tests.support.front_door import Door
from tests.support.hostile import IMPATIENT, warm_up


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """The defaults, but for the number of connections: all of them come from here."""
    with Door.open(max_connections_per_address="400") as running:
        warm_up(running)
        yield running


@pytest.fixture(scope="module")
def impatient() -> Iterator[Door]:
    """The defaults in every size, shorter in every time: for tests that wait for it to run out."""
    with Door.open(limits=IMPATIENT) as running:
        warm_up(running)
        yield running
