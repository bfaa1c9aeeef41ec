"""When Python's garbage collector looks for reference cycles: rarely by itself, and on a schedule.

By default it walks the whole heap after every few frames of 10,000 arrays, and everything else waits. So the threshold
is more live objects than the widest frame makes, which a calm gateway never reaches: the schedule finds the cycles
instead. A few objects may hold many bytes, and the collector does not count bytes: young objects are checked each
second.
"""

import asyncio
import gc
from typing import Final

YOUNG_OBJECTS: Final = 50_000  # more than the widest frame has (gateway/protocol/strict_json.py)
YOUNG_SECONDS: Final = 1
MIDDLE_SECONDS: Final = 10
ALL_SECONDS: Final = 60  # some 10 ms for each 100,000 objects that are alive, and younger than the start


def collect_rarely() -> None:
    """Set the thresholds and enable the collector; until then it may be disabled."""
    gc.enable()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


def leave_alone() -> None:
    """Exempt all present objects from later collections: they live as long as the process."""
    gc.collect()
    gc.freeze()


async def collect_by_schedule() -> None:
    seconds = 0
    while True:
        await asyncio.sleep(YOUNG_SECONDS)
        seconds += YOUNG_SECONDS
        gc.collect(2 if seconds % ALL_SECONDS == 0 else 1 if seconds % MIDDLE_SECONDS == 0 else 0)
