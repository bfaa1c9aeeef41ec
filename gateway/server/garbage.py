"""When Python's garbage collector looks for rings of objects: seldom by itself, and on a schedule.

By itself it looks at the whole heap every few frames of 10,000 arrays, and everybody waits. So it waits until more
objects are alive than the widest frame has, which in a calm gateway is never: then the schedule finds what would stay.
Few objects may hold many bytes, and nobody counts bytes: the young ones are looked at each second.
"""

import asyncio
import gc
from typing import Final

YOUNG_OBJECTS: Final = 50_000  # more than the widest frame has (gateway/protocol/strict_json.py)
YOUNG_SECONDS: Final = 1
MIDDLE_SECONDS: Final = 10
ALL_SECONDS: Final = 60  # some 10 ms for each 100,000 objects that are alive, and younger than the start


def collect_rarely() -> None:
    """From here on; before, nothing may have been collected at all."""
    gc.enable()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)


def leave_alone() -> None:
    """What is alive now lives as long as the process, and need not be looked at again."""
    gc.collect()
    gc.freeze()


async def collect_by_schedule() -> None:
    seconds = 0
    while True:
        await asyncio.sleep(YOUNG_SECONDS)
        seconds += YOUNG_SECONDS
        gc.collect(2 if seconds % ALL_SECONDS == 0 else 1 if seconds % MIDDLE_SECONDS == 0 else 0)
