"""Runs the gateway's periodic work: one task each, with a name. One that dies ends the gateway in order."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from gateway.telemetry.telemetry import Repeating
from persistence.errors import StoreUnavailable

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Chore:
    """Runs `first` seconds after the start and then every `every`. While the store is away it waits for its next
    turn."""

    name: str
    do: Callable[[], Awaitable[None]]
    first: float
    every: float


class MaintenanceScheduler:
    def __init__(self, chores: list[Chore], *, on_death: Callable[[BaseException], None]) -> None:
        self._chores = chores
        self._on_death = on_death
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._keep(chore), name=chore.name) for chore in self._chores]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _keep(self, chore: Chore) -> None:
        trouble = Repeating(f"{chore.name}.store_unavailable")
        await asyncio.sleep(chore.first)
        try:
            while True:
                try:
                    await chore.do()
                except StoreUnavailable as error:
                    trouble.failed(now=asyncio.get_running_loop().time(), cause=str(error))
                else:
                    trouble.worked()
                await asyncio.sleep(chore.every)
        except Exception as error:
            log.exception("house.keeper_died", keeper=chore.name)
            self._on_death(error)
