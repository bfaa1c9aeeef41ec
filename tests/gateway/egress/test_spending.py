"""The shell of the ledger: its journal, and what a request is counted as."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.egress.meter import MeterReading, Tokens
from gateway.egress.model_requests import AskedModel
from gateway.egress.model_settings import SpendingSettings
from gateway.egress.spending import BudgetRefused, Spending

CHEAP, DEAR = "claude-haiku-4-5", "claude-opus-4-1"
LIMITED = SpendingSettings(tokens=10_000)
SPENT = MeterReading(Tokens(1000, 1000), exact=True)


@contextmanager
def no_space() -> Iterator[None]:
    """No file of this process grows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def made(journal: Path) -> Spending:
    spending = Spending(lambda totals: True)
    spending.open(str(journal), "")
    return spending


async def entered(spending: Spending, settings: SpendingSettings = LIMITED, model: str = CHEAP) -> str:
    return await spending.enter("ann's", "ann", "anthropic", settings, AskedModel(model, 10), 10)


async def test_a_full_disk_refuses_what_a_budget_limits_and_is_got_over(tmp_path: Path) -> None:
    spending = made(tmp_path / "journal")
    under_way = await entered(spending)
    with no_space():
        with pytest.raises(BudgetRefused, match="look at the disk"):
            await entered(spending)
        free = await entered(spending, SpendingSettings())
        spending.settle(under_way, SPENT, AskedModel(CHEAP, 10))
        spending.settle(free, None, AskedModel(CHEAP, 10))
    assert spending.ledger.of_session("ann's").tokens.total == 2000
    spending.settle(await entered(spending), SPENT, AskedModel(CHEAP, 10))
    assert made(tmp_path / "journal").ledger.of_session("ann's").tokens.total == 4000, "nothing of it was lost"
    assert os.listdir(tmp_path) == ["journal"]


@pytest.mark.parametrize(
    ("asked", "answered", "counted"),
    [
        (CHEAP, DEAR, DEAR),
        (DEAR, CHEAP, DEAR),
        (CHEAP, f"{CHEAP}-20250101", CHEAP),
        (f"anthropic/{CHEAP}", f"{CHEAP}-20250101", CHEAP),
        (CHEAP, "", CHEAP),
        ("", DEAR, DEAR),
        ("nobody-knows-it", DEAR, DEAR),
    ],
)
async def test_the_dearer_model_counts_of_the_asked_and_the_answering(
    tmp_path: Path, asked: str, answered: str, counted: str
) -> None:
    """A request may name others to fall back on, or one twice."""
    spending = made(tmp_path / "journal")
    name = await entered(spending, SpendingSettings(), asked)
    spending.settle(name, MeterReading(SPENT.tokens, True, answered), AskedModel(asked, 10))
    price = spending.prices.of(counted)
    assert price is not None
    assert spending.ledger.of_session("ann's").cost == price.cost(SPENT.tokens)
