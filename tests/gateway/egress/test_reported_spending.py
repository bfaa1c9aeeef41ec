"""When totals are sent to the gateway, on virtual time."""

import asyncio

import pytest

from gateway.egress.meter import MeterReading, Tokens
from gateway.egress.model_requests import AskedModel
from gateway.egress.model_settings import SpendingSettings, SpentTotals
from gateway.egress.spending import HEAR_SECONDS, TELL_SECONDS, Spending

pytestmark = pytest.mark.virtual_time
ASKED = AskedModel("claude-haiku-4-5", 10)


class Told:
    """What was sent, and when."""

    def __init__(self) -> None:
        self.notes: list[tuple[float, SpentTotals]] = []
        self.spending = Spending(self.tell)

    def tell(self, totals: SpentTotals) -> bool:
        self.notes.append((asyncio.get_running_loop().time(), totals))
        return True

    def confirm(self) -> None:
        self.spending.heard(self.notes[-1][1].number)

    async def spend(self, session: str) -> float:
        """The time when it was spent."""
        name = await self.spending.enter(session, "ann", "anthropic", SpendingSettings(), ASKED, 10)
        self.spending.settle(name, MeterReading(Tokens(1, 1), exact=True), ASKED)
        return asyncio.get_running_loop().time()


async def test_a_total_is_sent_soon_after_the_last_was_confirmed() -> None:
    told = Told()
    await told.spend("first")
    await asyncio.sleep(2 * TELL_SECONDS)
    told.confirm()
    spent = await told.spend("second")
    await asyncio.sleep(HEAR_SECONDS)
    at, totals = told.notes[1]
    assert at - spent == pytest.approx(TELL_SECONDS)
    assert list(totals.sessions) == ["second"]


async def test_what_is_not_confirmed_is_sent_again() -> None:
    told = Told()
    await told.spend("first")
    await asyncio.sleep(2 * TELL_SECONDS)
    await told.spend("second")
    await asyncio.sleep(HEAR_SECONDS)
    assert [sorted(totals.sessions) for _, totals in told.notes] == [["first"], ["first", "second"]]
    told.confirm()
    await asyncio.sleep(3 * HEAR_SECONDS)
    assert len(told.notes) == 2, "nothing more is to be sent"


async def test_a_new_gateway_gets_everything_at_once() -> None:
    told = Told()
    await told.spend("first")
    await asyncio.sleep(2 * TELL_SECONDS)
    asked = asyncio.get_running_loop().time()
    told.spending.tell_all()
    await asyncio.sleep(TELL_SECONDS)
    at, totals = told.notes[1]
    assert at == asked
    assert list(totals.sessions) == ["first"]
