"""What dialects share: control in JSON, and sizes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.terminal.dialects.control import exact_size, read_control, read_object, rough_size, say
from sandbox.protocol.terminal import MAX_SIDE, Size
from sandbox.protocol.websocket_frames import FrameError
from tests.support.dialects import control

SIDES = st.integers() | st.floats() | st.none() | st.booleans() | st.text(max_size=3)


@given(st.text(), st.dictionaries(st.sampled_from(["a", "b"]), st.none() | st.integers(0, 9) | st.text()))
def test_what_is_said_is_an_object_with_its_type(kind: str, members: dict[str, Any]) -> None:
    (said,) = control(say(kind, **members))
    assert said == {"type": kind, **members}


@given(SIDES, SIDES)
def test_a_rough_size_is_cut_and_an_exact_one_is_not(cols: Any, rows: Any) -> None:
    exact = all(type(side) is int and 1 <= side <= MAX_SIDE for side in (cols, rows))
    rough = rough_size(cols, rows)
    if exact:
        assert exact_size(cols, rows) == rough == Size(cols, rows)
    else:
        with pytest.raises(FrameError, match="whole numbers from 1 to 1000"):
            exact_size(cols, rows)
    if rough is not None:
        assert rough == Size(int(min(cols, MAX_SIDE)), int(min(rows, MAX_SIDE)))


def test_a_control_message_is_an_object_with_a_type() -> None:
    assert read_control(b'{"type":"x","a":1}') == ("x", {"type": "x", "a": 1})
    assert read_object(b"{}") == {}
    for payload in (b"{}", b'{"type":1}', b"[]", b"", b"{"):
        with pytest.raises(FrameError) as refused:
            read_control(payload)
        assert refused.value.code == 4400
