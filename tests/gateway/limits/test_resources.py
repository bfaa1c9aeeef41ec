"""How much of its host a session's sandbox may use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.resources import ResourceRule
from sandbox.ports.resources import NO_LIMITS, ResourceLimits

MIB = 1 << 20
RULE = ResourceRule(ResourceLimits(memory=512 * MIB, cpus=2.0))
SOME = st.builds(
    ResourceLimits,
    memory=st.none() | st.integers(1, 1000),
    cpus=st.none() | st.floats(0.1, 64),
    pids=st.none() | st.integers(1, 1000),
)


@pytest.mark.parametrize(
    ("asked", "setting"),
    [
        (NO_LIMITS, None),
        (ResourceLimits(memory=512 * MIB, cpus=2.0, pids=10**6), None),
        (ResourceLimits(memory=513 * MIB), "HOLDFAST_LIMIT_MEMORY"),
        (ResourceLimits(memory=MIB, cpus=2.5), "HOLDFAST_LIMIT_CPUS"),
    ],
)
def test_users_have_up_to_the_operators_and_services_any(asked: ResourceLimits, setting: str | None) -> None:
    told = RULE.refusal(asked)
    assert (told is None) == (setting is None)
    assert setting is None or setting in (told or "")
    assert RULE.refusal(asked, granted=True) is None
    assert RULE.given(asked, granted=True) == ResourceLimits(
        asked.memory or 512 * MIB, asked.cpus or 2.0, asked.pids
    )  # fmt: skip


def test_a_user_keeps_no_more_than_the_operator_gives_now() -> None:
    before = ResourceLimits(memory=1024 * MIB, cpus=1.0, pids=50)
    assert RULE.given(before) == ResourceLimits(memory=512 * MIB, cpus=1.0, pids=50)
    assert RULE.given(NO_LIMITS) == RULE.most
    assert ResourceRule().given(before) == before


@given(most=SOME, asked=SOME, granted=st.booleans())
def test_what_is_given_is_never_more_than_what_is_allowed(
    most: ResourceLimits, asked: ResourceLimits, granted: bool
) -> None:
    rule = ResourceRule(most)
    found = rule.given(asked, granted=granted)
    assert rule.given(found, granted=granted) == found
    assert granted or rule.refusal(found) is None
    if rule.refusal(asked, granted=granted) is None:
        for name in ("memory", "cpus", "pids"):
            wanted = getattr(asked, name)
            assert getattr(found, name) == (getattr(most, name) if wanted is None else wanted)
