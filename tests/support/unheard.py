"""asyncio's complaints about neglected tasks: one whose failure nobody read, one that was forgotten while it waited.
Either is a bug, wherever it is reported: in the test's own process (tests/conftest.py checks after each test), or in
the log of a gateway (`Gateway` checks at its end). A loop of anyio's reports failed tasks by itself.

asyncio reports it when the task is freed, which may be some tests later.
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
    """The lines of a gateway's log that report one."""
    return [line for line in log.splitlines() if any(complaint in line for complaint in COMPLAINTS)]
