"""Which containers are left over."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.providers.container.document import LABEL
from sandbox.providers.container.left_over import ELSEWHERE_SECONDS, GRACE_SECONDS, why_left_over

NOW = 1_000_000.0
STATES = (
    "created",
    "running",
    "paused",
    "exited",
    "stopped",
    "dead",
    "removing",
    "restarting",
    None,
    "of another time",
)


def listed(state: str | None, *, home: str = "home", session: str = "s1", age: float = 0.0) -> dict[str, Any]:
    labels = {f"{LABEL}installation": "house", f"{LABEL}home": home, f"{LABEL}session": session}
    return {"State": state, "Labels": labels, "Created": NOW - age}


def is_left_over(found: dict[str, Any], *, named: bool = True, alive: bool = True) -> bool:
    return why_left_over(found, "home", named=named, alive=alive, now=NOW) is not None


def test_what_runs_is_left_over_if_nothing_names_it() -> None:
    for state in ("running", "paused"):
        assert not is_left_over(listed(state))
        assert is_left_over(listed(state), named=False)


def test_what_has_ended_is_left_over_unless_its_first_process_lives() -> None:
    for state in ("exited", "stopped", "dead"):
        assert is_left_over(listed(state), alive=False)
        assert not is_left_over(listed(state))
        assert is_left_over(listed(state), named=False), "the process is another container's"


def test_what_was_made_and_never_started_is_left_over() -> None:
    assert is_left_over(listed("created"), alive=False)
    assert not is_left_over(listed("removing"), alive=False)


def test_what_a_start_looks_at_an_image_with_is_left_over_after_a_while() -> None:
    assert not is_left_over(listed("created", session="", age=GRACE_SECONDS), named=False)
    assert is_left_over(listed("created", session="", age=GRACE_SECONDS + 1), named=False)


@pytest.mark.parametrize("created", [None, "yesterday"])
def test_an_age_that_is_not_told_is_none(created: object) -> None:
    assert not is_left_over({**listed("created", session=""), "Created": created}, named=False)


@given(st.sampled_from(STATES), st.floats(0, 2 * ELSEWHERE_SECONDS), st.booleans(), st.booleans())
def test_of_another_directory_only_what_ended_long_ago_is_left_over(
    state: str | None, age: float, named: bool, alive: bool
) -> None:
    expected = age > ELSEWHERE_SECONDS and state not in ("running", "paused")
    assert is_left_over(listed(state, home="another", age=age), named=named, alive=alive) is expected
