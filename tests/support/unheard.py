"""What asyncio says of tasks that nobody looks after: one that failed and nobody asked, one that was forgotten while it
waited. Either is a bug, wherever it is said: in the test's own process (tests/conftest.py asks after each test), or in
the log of a gateway (`Gateway` asks when it has ended). A loop of anyio's tells of failed tasks by itself.

asyncio says it when the task is freed, which may be some tests later.
"""

import logging

COMPLAINTS = ("exception was never retrieved", "was destroyed but it is pending")


class Complaints(logging.Handler):
    """Those of asyncio's logger."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if any(complaint in text for complaint in COMPLAINTS):
            self._heard.append(text)

    def taken(self) -> list[str]:
        """Those since the last time."""
        heard, self._heard = self._heard, []
        return heard


def in_log(log: str) -> list[str]:
    """The lines of a gateway's log that tell of one."""
    return [line for line in log.splitlines() if any(complaint in line for complaint in COMPLAINTS)]
