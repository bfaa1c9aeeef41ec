"""A terminal's client that wants no more output for now: it gets none, misses none, and harms nobody."""

import asyncio

import pytest

from gateway.terminal.read_pauses import PATIENCE_SECONDS
from sandbox.protocol.websocket_frames import TEXT, client_frame
from sandbox.providers.memory.terminals import RING_BYTES
from tests.support.sessions import World
from tests.support.terminal_tabs import TerminalTab, linked_tab

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def awake(world: World) -> World:
    """A world with one session, whose sandbox runs."""
    await (await world.create()).wake()
    return world


async def pause(tab: TerminalTab) -> None:
    tab.say("pause")
    await asyncio.sleep(0.01)


def write(world: World, words: bytes) -> None:
    world.sandbox().terminals["main"].write(words)


async def test_a_client_that_pauses_gets_nothing_until_it_goes_on_and_then_exactly_what_it_missed(awake: World) -> None:
    tab, other = await linked_tab(awake), await linked_tab(awake)
    write(awake, b"before ")
    await tab.shows(b"before")
    await pause(tab)
    write(awake, b"meanwhile ")
    await other.shows(b"meanwhile")
    await asyncio.sleep(1)
    assert tab.output == b"before "
    tab.say("resume")
    await tab.shows(b"meanwhile")
    assert tab.output == other.output == b"before meanwhile "
    assert tab.position == other.position
    assert not tab.seen("reset")


async def test_typing_and_sizes_go_through_while_it_is_paused(awake: World) -> None:
    tab, other = await linked_tab(awake), await linked_tab(awake)
    await pause(tab)
    tab.type(b"stop it")
    tab.say("resize", cols=91, rows=21)
    await other.shows(b"stop it")
    await other.until("resize", cols=91, rows=21)
    assert tab.output == b""


async def test_a_pause_is_no_reason_to_be_closed_and_after_a_while_its_link_is_given_up(awake: World) -> None:
    tab, other = await linked_tab(awake), await linked_tab(awake)
    write(awake, b"before ")
    await tab.shows(b"before")
    await pause(tab)
    await asyncio.sleep(PATIENCE_SECONDS - 1)
    assert tab.viewer.linked
    await asyncio.sleep(2)
    await awake.until(lambda: not tab.viewer.linked, "the end of its link")
    for _ in range(30):  # it answers pings
        tab.transport.receive(client_frame(10, b""))
        await asyncio.sleep(10)
    assert tab.closed_with is None
    write(awake, b"much later ")
    await other.shows(b"later")
    assert tab.output == b"before "
    tab.say("resume")
    await tab.shows(b"later")
    assert tab.output == other.output
    assert not tab.seen("reset")


async def test_what_is_typed_after_its_link_was_given_up_is_typed(awake: World) -> None:
    tab, other = await linked_tab(awake), await linked_tab(awake)
    await pause(tab)
    await asyncio.sleep(PATIENCE_SECONDS + 1)
    assert not tab.viewer.linked
    tab.type(b"enough")
    await other.shows(b"enough")
    assert tab.viewer.stopped
    await asyncio.sleep(PATIENCE_SECONDS + 1)
    assert not tab.viewer.linked, "it is paused still"
    tab.say("resume")
    await tab.shows(b"enough")
    assert tab.position == other.position


async def test_who_was_left_a_ring_behind_is_painted_anew(awake: World) -> None:
    tab = await linked_tab(awake)
    await pause(tab)
    await asyncio.sleep(PATIENCE_SECONDS + 1)
    write(awake, b"x" * (RING_BYTES + 1))
    write(awake, b" the end")
    tab.say("resume")
    reset = await tab.until("reset")
    assert reset["offset"] == RING_BYTES + 9
    await tab.shows(b"the end")
    write(awake, b" and on")
    await tab.shows(b"and on")
    assert tab.position.offset == RING_BYTES + 16


async def test_a_resume_without_a_pause_and_a_second_pause_say_nothing(awake: World) -> None:
    tab = await linked_tab(awake)
    tab.say("resume")
    tab.say("resume")
    write(awake, b"one ")
    await tab.shows(b"one")
    tab.say("pause")
    await pause(tab)
    write(awake, b"two ")
    await asyncio.sleep(1)
    assert tab.output == b"one "
    tab.say("resume")
    await tab.shows(b"two")


async def test_a_pause_outlives_a_link_that_is_lost(awake: World) -> None:
    tab = await linked_tab(awake)
    await pause(tab)
    for link in list(awake.sandbox().terminals["main"].links.values()):
        link.lose("cut by the test")
    tab.say("resume")  # what was lost is only noticed by one who reads
    tab.say("pause")
    await awake.until(lambda: tab.viewer.linked, "the link")
    write(awake, b"later")
    await asyncio.sleep(5)
    assert tab.output == b""
    tab.say("resume")
    await tab.shows(b"later")


async def test_a_parked_client_sees_its_session_sleep_and_wakes_it_by_typing(awake: World) -> None:
    tab = await linked_tab(awake)
    await pause(tab)
    await asyncio.sleep(PATIENCE_SECONDS + 1)
    await (await awake.actor()).sleep()
    await tab.until("status", status="sleeping")
    tab.type(b"wake")
    await tab.until("status", status="starting")
    tab.say("resume")
    await tab.until("reset")
    tab.type(b"hello")
    await tab.shows(b"hello")


async def test_a_flood_of_pauses_and_resumes_costs_one_timer_and_loses_nothing(awake: World) -> None:
    tab, other = await linked_tab(awake), await linked_tab(awake)
    for number in range(50):
        flood = client_frame(TEXT, b'{"type":"pause"}') + client_frame(TEXT, b'{"type":"resume"}')
        tab.transport.receive(flood * 200)
        write(awake, b"%d " % number)
        await asyncio.sleep(0.1)
    scheduled = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    assert len(scheduled) < 100
    await other.shows(b"49 ")
    await tab.shows(b"49 ")
    assert tab.output == other.output
    await asyncio.sleep(2 * PATIENCE_SECONDS)
    assert tab.viewer.linked
    assert tab.closed_with is None


async def test_who_leaves_while_paused_leaves_nothing_behind(awake: World) -> None:
    tab = await linked_tab(awake)
    await pause(tab)
    assert tab.viewer.parking is not None
    tab.leave()
    await asyncio.sleep(1)
    assert tab.viewer.parking.cancelled()
    assert len((await awake.actor()).terminals) == 0


async def test_who_asks_for_a_sign_of_life_gets_one_also_while_it_is_paused_and_not_if_it_does_not_read(
    awake: World,
) -> None:
    tab = await linked_tab(awake)
    tab.say("ping")
    await tab.until("pong")
    await pause(tab)
    tab.say("ping")
    await tab.until("pong", count=2)
    tab.say("resume")
    tab.freeze()
    for _ in range(8):
        write(awake, bytes(1 << 19))
    await awake.until(lambda: tab.viewer._full, "a full socket")
    for _ in range(1000):
        tab.say("ping")
    await asyncio.sleep(1)
    assert b"pong" not in tab.transport._unsent


async def test_a_driver_that_goes_on_for_a_moment_now_and_then_is_waited_for_no_longer(awake: World) -> None:
    tab = await linked_tab(awake)
    await pause(tab)
    for _ in range(10):
        await asyncio.sleep(12)
        tab.say("resume")
        tab.say("pause")
    await asyncio.sleep(1)
    assert not tab.viewer.linked
    for _ in range(10):
        tab.say("resume")
        await pause(tab)
        assert not tab.viewer.linked, "nor does it get another link by that"
    tab.say("resume")
    await awake.until(lambda: tab.viewer.linked, "the link")
    write(awake, b"and on")
    await tab.shows(b"and on")


async def test_a_driver_that_pauses_to_draw_what_it_takes_is_waited_for(awake: World) -> None:
    tab = await linked_tab(awake)
    for _ in range(100):
        write(awake, bytes(RING_BYTES // 2))
        await pause(tab)
        await asyncio.sleep(0.4)
        tab.say("resume")
        await asyncio.sleep(0.1)
    await pause(tab)
    await asyncio.sleep(PATIENCE_SECONDS - 1)
    assert tab.viewer.linked
    assert not tab.seen("reset")
