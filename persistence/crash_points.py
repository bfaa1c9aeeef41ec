"""Named places where the process may die. In production they do nothing.

The campaign replaces `reached` with a function that kills the process at one of them, to show that dying there harms
nobody. Call it as `crash_points.reached("queue.taken")`: a name imported by itself would not be replaced.
"""


def reached(point: str) -> None:
    """The process is at `point`."""
