import asyncio

import pytest

from tests.support.virtual_time import EverybodyWaits, VirtualTimeLoop


def test_an_hour_passes_at_once() -> None:
    async def wait() -> float:
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(wait()) == pytest.approx(3_600)


def test_waiting_for_nothing_fails_instead_of_hanging() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner, pytest.raises(EverybodyWaits):
        runner.run(asyncio.Event().wait())
