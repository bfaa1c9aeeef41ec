"""Clients send while their connections are cut and bridges are killed: nothing is lost, doubled or reordered."""

from pathlib import Path
from random import Random

import pytest

from tests.campaign.places import CONTAINED, TRUSTED, Place
from tests.campaign.size import seeded, sized, when_large
from tests.campaign.stage import cutting, staged
from tests.support.launcher import Launcher, Tampering

FORGIVING = Tampering(patches=("forgiving",))  # the fifth kill within five minutes would be a crash loop


def _faults(rng: Random, sessions: int, cuts: int, kills: int) -> list[str | None]:
    """None is a cut; a name is the session whose bridge is killed."""
    victims = [f"s{number % sessions}" for number in range(kills)]
    faults: list[str | None] = [None] * cuts + victims
    rng.shuffle(faults)
    return faults


async def cuts_and_kills(
    tmp_path: Path,
    place: Place,
    *,
    sessions: int,
    messages: int,
    cuts: int,
    kills: int,
    name: str,
) -> None:
    seed, rng = seeded()
    async with (
        Launcher() as launcher,
        staged(tmp_path, seed, rng, launcher=launcher, tampering=FORGIVING, place=place) as stage,
    ):
        async with cutting(stage.gateway) as proxy:
            await stage.create(sessions, 2, messages, pace=0.002, address=lambda: f"ws://127.0.0.1:{proxy.port}")
            faults = _faults(rng, sessions, cuts, kills)
            async with stage.playing():
                for number, victim in enumerate(faults, 1):
                    await stage.progress(number * messages // (len(faults) + 1))
                    if victim is None:
                        await proxy.harm_one(rng)
                    else:
                        await stage.kill_bridge(victim)
                await stage.all_settled()
        verdict = await stage.acquit(name, cuts=cuts, kills=kills)
        assert verdict.cases == messages
        (await stage.check(name)).acquit(*when_large("resent"))


@pytest.mark.soak
async def test_nothing_acked_is_lost_when_connections_are_cut_and_bridges_are_killed(tmp_path: Path) -> None:
    await cuts_and_kills(
        tmp_path,
        TRUSTED,
        sessions=sized(6, 50),
        messages=sized(600, 10_000),
        cuts=sized(20, 200),
        kills=sized(6, 50),
        name="cuts and bridge kills",
    )


@pytest.mark.soak
async def test_the_same_holds_in_contained_sandboxes(tmp_path: Path) -> None:
    await cuts_and_kills(
        tmp_path,
        CONTAINED,
        sessions=sized(2, 10),
        messages=sized(80, 1000),
        cuts=sized(4, 40),
        kills=sized(2, 20),
        name="cuts and bridge kills, contained",
    )
