"""What a terminal's client, its bridge or a second person may do to a session, and what it must not come to."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.protocol.close_codes import CloseCode
from gateway.protocol.errors import ApiError
from sandbox.client.endpoint import BridgeConnection, P, UnixEndpoint, open_link
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.terminal import TerminalTrouble
from sandbox.protocol.websocket_frames import BINARY, PONG, client_frame
from tests.support.sessions import World
from tests.support.terminal_tabs import HIGH_WATER, linked_tab, terminal_tab

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def awake(world: World) -> World:
    """A world with one session, whose sandbox runs."""
    await (await world.create()).wake()
    return world


async def test_who_leaves_while_no_link_can_be_had_is_noticed(awake: World) -> None:
    """Those who waited were once not read, so that nobody saw them go."""
    awake.fleet.link_problem = "the bridge is busy"
    tabs = [await terminal_tab(awake) for _ in range(5)]
    actor = await awake.actor()
    await asyncio.sleep(1)
    assert len(actor.terminals) == 5
    for tab in tabs:
        tab.type(b"x" * 1000)
        tab.transport.receive(client_frame(8, b"\x03\xe8"))
    await asyncio.sleep(1)
    assert len(actor.terminals) == 0


async def test_what_is_typed_without_a_link_waits_up_to_a_bound_and_the_rest_is_said_to_be_left_out(
    awake: World,
) -> None:
    awake.fleet.link_problem = "the bridge is busy"
    tab = await terminal_tab(awake)
    for _ in range(1000):
        tab.type(b"y" * 100)
        await asyncio.sleep(0.001)
    await tab.until("error", code="input_full")
    awake.fleet.link_problem = None
    await tab.shows(b"y" * 1000)
    assert len(tab.output) <= 64 * 1024


async def test_who_provokes_answers_and_reads_none_costs_no_memory(awake: World) -> None:
    await (await awake.actor()).pause()
    tab = await terminal_tab(awake)
    await tab.until("status", status="paused")
    tab.transport.frozen = True
    for _ in range(20):
        for _ in range(200):
            tab.type(b"let me in")
            tab.say("auth", token="")
        await asyncio.sleep(0.1)
    assert tab.transport.get_write_buffer_size() < 4 * HIGH_WATER


async def test_a_flood_of_pongs_is_closed_like_one_of_pings(awake: World) -> None:
    tab = await linked_tab(awake)
    tab.transport.receive(client_frame(PONG, b"") * 5000)
    await asyncio.sleep(5)
    assert tab.closed_with == CloseCode.TOO_MANY


async def test_a_read_full_of_tiny_frames_leaves_turns_to_others(awake: World) -> None:
    flood, other = await linked_tab(awake), await linked_tab(awake, name="other")
    flood.transport.receive(client_frame(BINARY, b"") * 40_000)
    other.type(b"me too")
    turns = 0
    while not other.output:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 40, "others wait for all of it"


@pytest.mark.parametrize("said", [b"", b"\x1b[I", b"\x1b[?1;2c", b"\x1b[5;7R", b"\x1b[<35;10;10M"], ids=repr)
async def test_what_no_person_types_wakes_nobody(awake: World, said: bytes) -> None:
    await (await awake.actor()).sleep()
    tab = await terminal_tab(awake)
    await tab.until("status", status="sleeping")
    tab.type(said)
    await asyncio.sleep(60)
    assert not awake.sandbox().alive


async def test_a_terminal_stays_when_the_agent_is_given_up(awake: World) -> None:
    """Whoever is told to mend it needs the tool to do so."""
    tab = await linked_tab(awake)
    for _ in range(6):
        if (agent := awake.sandbox().agent) is not None:
            agent.exit(1)
        await asyncio.sleep(30)
    actor = await awake.actor()
    assert actor.describe()["status"] == "error"
    assert tab.viewer.linked
    tab.type(b"mend it")
    await tab.shows(b"mend it")


async def test_an_exit_during_a_sleep_that_fails_is_told_after_all(awake: World) -> None:
    tab = await linked_tab(awake)
    actor, roots = await awake.actor(), awake.sandbox().roots
    roots.step_seconds = 2
    roots.failures["scan"] = [TreeFailed("failed", "not now")] * 3
    sleeping = asyncio.ensure_future(actor.sleep())
    await awake.until(lambda: actor.life.core.stopping, "the stop")
    awake.sandbox().terminals["main"].exit(None, "SIGHUP")
    await asyncio.sleep(1)
    assert not tab.seen("exit")
    with pytest.raises(ApiError, match="not now"):
        await sleeping
    await tab.until("exit", signal="SIGHUP")


async def test_a_bridge_that_lets_in_only_to_throw_out_is_asked_less_and_less(awake: World) -> None:
    tab = await terminal_tab(awake)
    greetings = 0
    terminals = awake.sandbox().terminals

    async def throw_out() -> None:
        nonlocal greetings
        while True:
            for each in list(terminals.values()):
                for link in list(each.links.values()):
                    greetings += 1
                    link.lose("thrown out")
            await asyncio.sleep(0.001)

    throwing = asyncio.create_task(throw_out())
    await asyncio.sleep(60)
    throwing.cancel()
    assert 3 < greetings < 200
    await tab.until("ready")


async def test_troubles_that_a_bridge_repeats_do_not_pile_up_for_one_who_does_not_read(awake: World) -> None:
    tab = await linked_tab(awake)
    tab.transport.frozen = True
    for number in range(20_000):
        tab.viewer.on_trouble(TerminalTrouble("input_full", f"number {number}"))
    assert tab.transport.get_write_buffer_size() < 4 * HIGH_WATER


async def test_one_who_only_looks_opens_no_terminal(awake: World) -> None:
    tab = await terminal_tab(awake, name="new", role="view")
    await tab.until("error", code="unknown_terminal")
    assert "new" not in awake.sandbox().terminals
    owner = await linked_tab(awake, name="new")
    owner.type(b"come in")
    await tab.shows(b"come in")


async def test_one_who_has_not_taken_all_at_the_end_has_time_to(awake: World) -> None:
    """It was once cut off after a few seconds, with the last of the output and the goodbye unsent."""
    tab = await linked_tab(awake)
    tab.transport.frozen = True
    awake.sandbox().terminals["main"].write(b"the end")
    await asyncio.sleep(1)
    tab.viewer.close(CloseCode.FINISHED)
    await asyncio.sleep(15)
    assert not tab.transport.is_closing()
    tab.transport.thaw()
    assert (tab.output, tab.closed_with) == (b"the end", CloseCode.FINISHED)


async def test_one_who_takes_nothing_at_the_end_is_cut_off(awake: World) -> None:
    tab = await linked_tab(awake)
    tab.transport.frozen = True
    tab.viewer.close(CloseCode.FINISHED)
    await asyncio.sleep(60)
    assert tab.transport.is_closing()


async def test_a_link_that_opened_at_the_last_moment_is_open(awake: World) -> None:
    """Its owner has heard of it: closed without a word, it would have been taken for open for ever."""
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Late(BridgeConnection):
        closed = False

        def close(self) -> None:
            self.closed = True

    class Slow(UnixEndpoint):
        async def dial(self, factory: Callable[[], P]) -> P:
            link = factory()
            opened.set_result(None)
            await asyncio.sleep(60)
            return link

    link = Late()
    assert await open_link(Slow("nowhere"), link, opened, 10.0) is link
    assert not link.closed
