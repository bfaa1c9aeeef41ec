"""Long answers, and what is left of them when their reader has gone."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway.http.responses import LongResponse


class Page:
    content = b"x"


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_what_was_read_for_a_reader_who_left_is_freed_at_once() -> None:
    """The collector comes rarely: readers who came and left again and again took hundreds of MiB."""
    read: list[weakref.ref[Page]] = []
    begun, left = asyncio.Event(), asyncio.Event()

    async def rest(page: Page) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return page.content

    async def pages() -> AsyncIterator[bytes]:
        page = Page()
        read.append(weakref.ref(page))
        yield page.content
        yield await rest(page)

    async def receive() -> dict[str, Any]:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    answer = LongResponse(pages(), over=left.set)
    await answer({"type": "http", "method": "GET", "asgi": {"spec_version": "2.3"}}, receive, send)
    assert left.is_set()
    assert [each() for each in read] == [None]
