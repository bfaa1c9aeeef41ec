"""Sessions that begin with another one's workspace."""

import pytest

from gateway.protocol.errors import ApiError
from gateway.session.model.state import SessionSpec
from persistence.record import Session
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


async def test_a_start_that_is_longer_than_it_may_be_today_is_not_copied_to_branches(world: World) -> None:
    """The version before kept one as long as a frame: its session goes on, and its branches would take as much each."""
    spec = SessionSpec(start={"x": "s" * (64 << 10)})
    with pytest.raises(ApiError, match="send a shorter one first") as refused:
        await world.sessions.branching.branch(Session("s", "ann", 1.0, spec.to_json()), None, "branch")
    assert (refused.value.status, refused.value.code) == (409, "start_too_large")
