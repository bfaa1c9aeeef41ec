"""The gate for tasks that nobody looks after says no where it should."""

import asyncio
import gc
import json
import logging

from tests.conftest import COMPLAINTS
from tests.support import unheard


async def fail() -> None:
    raise ValueError("nobody asked")


def test_a_task_that_failed_or_was_forgotten_is_noticed() -> None:
    async def leave_alone() -> None:
        failed = asyncio.create_task(fail())
        await asyncio.wait({failed})

    asyncio.run(leave_alone())
    loop = asyncio.new_event_loop()
    forgotten = loop.create_task(fail())
    loop.close()
    coroutine = forgotten.get_coro()
    del forgotten
    gc.collect()
    first, second = COMPLAINTS.taken()
    assert "Task exception was never retrieved" in first
    assert "ValueError: nobody asked" in first
    assert "Task was destroyed but it is pending" in second
    coroutine.close()


def test_another_word_of_asyncio_is_no_complaint() -> None:
    logging.getLogger("asyncio").error("something else")
    assert COMPLAINTS.taken() == []


def test_a_gateways_log_is_searched() -> None:
    said = json.dumps({"event": "library.said", "text": "Task exception was never retrieved\nfuture: <Task ...>"})
    assert unheard.in_log(f"first\n{said}\nlast\n") == [said]
