"""The promises that hold for local processes when gateways, bridges and connections are killed hold for containers,
too."""

from pathlib import Path

import pytest

from tests.campaign.places import Containers
from tests.campaign.size import sized
from tests.campaign.sync.cupboards import Directory
from tests.campaign.sync.test_rounds import sync_rounds
from tests.campaign.terminal.test_cuts import flood_with_cuts
from tests.campaign.test_cuts_and_kills import cuts_and_kills
from tests.campaign.test_everything_at_once import everything_at_once
from tests.campaign.test_gateway_kills import gateway_kills


@pytest.mark.soak
async def test_nothing_acked_is_lost_when_connections_are_cut_and_bridges_are_killed(
    tmp_path: Path, containers: Containers
) -> None:
    await cuts_and_kills(
        tmp_path,
        containers,
        sessions=sized(2, 10),
        messages=sized(60, 1000),
        cuts=sized(3, 40),
        kills=sized(2, 20),
        name="cuts and bridge kills, containers",
    )


@pytest.mark.soak
async def test_a_killed_gateway_loses_nothing_and_finds_its_containers_again(
    tmp_path: Path, containers: Containers
) -> None:
    await gateway_kills(
        tmp_path,
        containers,
        sessions=sized(2, 4),
        messages=sized(60, 1200),
        kills=sized(2, 20),
        name="gateway kills, containers",
    )


@pytest.mark.soak
async def test_every_tree_that_comes_back_was_committed(tmp_path: Path, containers: Containers) -> None:
    await sync_rounds(
        tmp_path,
        Directory(tmp_path / "objects"),
        "sync rounds, containers",
        "crashes",
        rounds=sized(4, 40),
        sessions=2,
        place=containers,
    )


@pytest.mark.soak
async def test_a_flood_reaches_every_viewer_byte_for_byte_or_with_a_reset_at_the_gap(
    tmp_path: Path, containers: Containers
) -> None:
    await flood_with_cuts(
        tmp_path,
        containers,
        cuts=sized(6, 100),
        size=sized(4 << 20, 100 << 20),
        name="terminal cuts, flood, containers",
    )


@pytest.mark.soak
async def test_the_promises_hold_when_everything_happens_at_once(tmp_path: Path, containers: Containers) -> None:
    await everything_at_once(
        tmp_path,
        containers,
        sessions=sized(2, 6),
        messages=sized(100, 1500),
        rounds=sized(1, 15),
        name="everything at once, containers",
    )
