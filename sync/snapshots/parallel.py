"""The same work on many things, a few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


async def each(work: Callable[[A], Awaitable[B]], things: Iterable[A], *, at_once: int) -> list[B]:
    """The results of `work` for all of them, in their order. The first failure ends the others, and is raised itself,
    not in a group: callers tell failures apart."""
    waiting = list(things)
    results: dict[int, B] = {}
    numbers = iter(range(len(waiting)))

    async def go_on() -> None:
        for number in numbers:
            results[number] = await work(waiting[number])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(waiting))):
                group.create_task(go_on(), name="one of many")
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__
    return [results[number] for number in range(len(waiting))]
