"""A counter that is a plain number. Pure.

For events that happen with every message: the counter of prometheus_client takes a lock, and several calls. Only one
thread uses it, the event loop's, which also reads it.
"""


class PlainCounter:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0.0

    def inc(self, amount: float = 1) -> None:
        self.count += amount
