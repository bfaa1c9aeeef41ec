"""Named places where the process may die. Here nothing happens at them.

The campaign puts a function in the place of `reached` that kills the process at one of them, so that each is shown to
be a place where dying harms nobody. Call it as `crash_points.reached("queue.taken")`: a name imported by itself would
stay what it is.
"""


def reached(point: str) -> None:
    """The process has come to `point`."""
