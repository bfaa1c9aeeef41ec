"""A session's terminals: who watches, what wakes, what is found again, and what everybody is told at the end."""

import asyncio
from typing import NoReturn

import pytest

from gateway.session.model.ports import SessionLimits
from sandbox.ports.terminals import TerminalWish
from sandbox.protocol.terminal import Size, TerminalTrouble
from sandbox.protocol.values import Position
from sandbox.providers.memory.terminals import MemoryTerminal
from tests.support.sessions import World
from tests.support.terminal_tabs import TerminalTab, linked_tab, terminal_tab

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def awake(world: World) -> World:
    """A world with one session, whose sandbox runs."""
    await (await world.create()).wake()
    return world


def terminal(world: World, name: str = "main") -> MemoryTerminal:
    return world.sandbox().terminals[name]


def cut(world: World, name: str = "main") -> None:
    """Every link of this terminal is lost."""
    for link in list(terminal(world, name).links.values()):
        link.lose("cut by the test")


async def parrot(tab: TerminalTab, words: bytes) -> None:
    tab.type(words)
    await tab.shows(words)


async def test_a_viewer_is_greeted_types_and_sees(awake: World) -> None:
    tab = await linked_tab(awake, size=Size(100, 30))
    ready = await tab.until("ready")
    assert (ready["offset"], ready["cols"], ready["rows"], ready["replayed"]) == (0, 100, 30, 0)
    await parrot(tab, b"hello")
    assert tab.output == b"hello"
    assert [told["type"] for told in tab.controls] == ["ready"], "nothing else is said while all is well"
    tab.say("resize", cols=90, rows=20)
    await tab.until("resize", cols=90, rows=20)


async def test_what_came_behind_the_handshake_is_typed(awake: World) -> None:
    """It was once dropped: the session did not know the viewer yet, and so there was nothing to type to."""
    tab = await terminal_tab(awake)
    tab.type(b"early")
    await tab.shows(b"early")


# Asleep


async def test_attaching_does_not_wake_and_typing_does_and_is_typed(awake: World) -> None:
    await (await awake.actor()).sleep()
    tab = await terminal_tab(awake)
    await tab.until("status", status="sleeping")
    assert tab.seen("ready")[0]["epoch"] == ""
    await asyncio.sleep(3600)
    assert not awake.sandbox().alive, "attaching does not wake"
    tab.type(b"wake up")
    await tab.until("status", status="starting")
    await tab.until("status", status="running")
    await tab.until("reset")
    await tab.shows(b"wake up")
    await parrot(tab, b"now")
    assert tab.output == b"wake upnow"
    assert awake.fleet.starts == 2


async def test_what_is_typed_while_it_starts_is_typed_when_it_runs(awake: World) -> None:
    await (await awake.actor()).sleep()
    awake.fleet.start_seconds = 20.0
    tab = await terminal_tab(awake)
    await tab.until("status", status="sleeping")
    tab.type(b"wake")
    await tab.until("status", status="starting")
    for words in (b"one ", b"two ", b"three"):
        tab.type(words)
        await asyncio.sleep(1)
    await tab.shows(b"one two three")
    assert tab.output == b"wakeone two three"


async def test_a_client_that_comes_back_to_a_sleeping_session_keeps_its_place_until_it_is_void(awake: World) -> None:
    tab = await linked_tab(awake)
    await parrot(tab, b"before")
    place = tab.position
    tab.leave()
    await (await awake.actor()).sleep()
    tab = await terminal_tab(awake, after=place)
    await tab.until("status", status="sleeping")
    assert tab.position == place
    tab.type(b"wake")
    reset = await tab.until("reset")
    assert reset["epoch"] != place.epoch


async def test_sleep_is_told_and_typing_wakes(awake: World) -> None:
    tab = await linked_tab(awake)
    await parrot(tab, b"before")
    await (await awake.actor()).sleep()
    await tab.until("status", status="sleeping")
    assert not tab.viewer.linked
    tab.type(b"wake")
    await tab.until("reset")
    await parrot(tab, b"after")
    assert tab.statuses == ["sleeping", "starting", "running"]
    assert tab.output == b"wakeafter"


async def test_who_only_views_wakes_nobody(awake: World) -> None:
    await (await awake.actor()).sleep()
    tab = await terminal_tab(awake, role="view")
    await tab.until("status", status="sleeping")
    tab.type(b"wake")
    await asyncio.sleep(60)
    assert not awake.sandbox().alive


async def test_a_paused_session_says_so_to_whoever_types(awake: World) -> None:
    actor = await awake.actor()
    tab = await linked_tab(awake)
    await actor.pause()
    await tab.until("status", status="paused")
    tab.type(b"hello?")
    assert "resume" in (await tab.until("error", code="paused"))["error"]
    await asyncio.sleep(60)
    assert not awake.sandbox().alive
    await actor.resume(None)
    await tab.until("status", status="running")
    await parrot(tab, b"here")


async def test_a_sandbox_that_cannot_start_is_told_and_typing_tries_again(awake: World) -> None:
    await (await awake.actor()).sleep()
    awake.fleet.start_failures = ["no room"]
    tab = await terminal_tab(awake)
    tab.type(b"wake")
    await tab.until("status", status="error")
    tab.type(b"again")
    await tab.until("status", status="running")
    await parrot(tab, b"here")
    assert tab.output == b"againhere", "what was typed for the start that failed is dropped"
    assert len(tab.seen("error", code="input_dropped")) == 1


# Links


async def test_a_lost_link_is_found_again_and_the_client_never_knows(awake: World) -> None:
    tab = await linked_tab(awake)
    for number in range(20):
        tab.type(b"%d," % number)
        if number % 3 == 0:
            await tab.shows(b"%d," % number)
            cut(awake)
            terminal(awake).write(b"meanwhile,")
    await tab.shows(b"19,")
    assert [told["type"] for told in tab.controls] == ["ready"]
    assert tab.output == bytes(await everything(awake))
    assert tab.position.offset == len(tab.output)


async def everything(world: World) -> bytes:
    """All that the terminal has written, as somebody sees who asks for it from the start."""
    epoch = terminal(world).describe("main")["epoch"]
    witness = await linked_tab(world, after=Position(epoch, 0))
    await witness.met(lambda: len(witness.output) >= witness.seen("ready")[0]["replayed"], "the replay")
    witness.leave()
    return witness.output


async def test_what_is_typed_while_the_link_is_away_is_typed_later(awake: World) -> None:
    tab = await linked_tab(awake)
    await parrot(tab, b"a")
    awake.fleet.link_problem = "not now"
    cut(awake)
    await asyncio.sleep(0)
    tab.type(b"held")
    await asyncio.sleep(10)
    assert tab.output == b"a"
    awake.fleet.link_problem = None
    await tab.shows(b"held")
    assert tab.output == b"aheld"


async def test_a_link_that_was_overtaken_by_the_ring_is_repainted(awake: World) -> None:
    tab = await linked_tab(awake)
    await parrot(tab, b"old")
    awake.fleet.link_problem = "not now"
    cut(awake)
    terminal(awake).write(b"x" * 100_000 + b"newest")
    awake.fleet.link_problem = None
    reset = await tab.until("reset")
    assert reset["offset"] == 3 + 100_006
    assert b"newest" in tab.pictures[0]
    await parrot(tab, b"!")
    assert tab.output == b"!"


async def test_a_sandbox_that_died_comes_back_with_another_screen(awake: World) -> None:
    tab = await linked_tab(awake)
    await parrot(tab, b"old")
    before = tab.position
    awake.sandbox().crash()
    reset = await tab.until("reset")
    assert reset["epoch"] != before.epoch
    await parrot(tab, b"new")
    assert tab.output == b"new"


async def test_a_gateway_that_is_restarted_leaves_a_viewers_place(awake: World) -> None:
    tab = await linked_tab(awake)
    await parrot(tab, b"before")
    place = tab.position
    await awake.restart()
    terminal(awake).write(b"meanwhile")
    tab = await linked_tab(awake, after=place)
    await tab.shows(b"meanwhile")
    assert (tab.pictures, tab.output) == ([], b"meanwhile")
    assert tab.seen("ready")[0]["replayed"] == len(b"meanwhile")


async def test_a_place_that_is_met_late_is_where_the_client_was_told(awake: World) -> None:
    """A client that came back while the bridge did not answer was once told that it is nowhere, then resumed without
    a word: its count was wrong from there on."""
    tab = await linked_tab(awake)
    await parrot(tab, b"before")
    place = tab.position
    tab.leave()
    awake.fleet.link_problem = "not now"
    tab = await terminal_tab(awake, after=place)
    await asyncio.sleep(5)
    terminal(awake).write(b"meanwhile")
    awake.fleet.link_problem = None
    await tab.shows(b"meanwhile")
    assert tab.position == Position(place.epoch, place.offset + len(b"meanwhile"))


async def test_why_a_bridge_lets_nobody_in_is_told_once_and_behind_ready(awake: World) -> None:
    """A bridge whose shell cannot be run says so at every attempt."""
    tab = await linked_tab(awake)
    cut(awake)
    awake.fleet.link_problem = "not now"
    await awake.until(lambda: not tab.viewer.linked, "the loss")
    for _ in range(5):
        tab.viewer.on_trouble(TerminalTrouble("start_failed", "no such program"))
    await asyncio.sleep(10)
    assert len(tab.seen("error", code="start_failed")) == 1
    fresh = await terminal_tab(awake)
    fresh.viewer.on_trouble(TerminalTrouble("start_failed", "no such program"))
    await fresh.until("error", code="start_failed")
    assert fresh.controls[0]["type"] == "ready"
    awake.fleet.link_problem = None
    await awake.until(lambda: tab.viewer.linked and fresh.viewer.linked, "the links")


async def test_a_frozen_viewer_is_not_read_for_and_goes_on_where_it_was(awake: World) -> None:
    frozen, other = await linked_tab(awake), await linked_tab(awake)
    frozen.freeze()
    for number in range(200):
        terminal(awake).write(b"%04d" % number * 256)
        await asyncio.sleep(0.01)
    assert frozen.transport.get_write_buffer_size() < 2 * 64 * 1024, "a viewer costs its buffer and no more"
    assert len(other.output) == 200 * 1024
    frozen.thaw()
    await frozen.shows(b"0199" * 256)
    await parrot(frozen, b"back")


# Ends


async def test_an_exit_is_told_and_typing_begins_anew(awake: World) -> None:
    tab = await linked_tab(awake)
    tab.type(b"quit")
    await tab.until("exit", code=3, signal=None)
    late = await linked_tab(awake)
    await late.until("exit", code=3)
    tab.type(b"again")
    await tab.until("reset")
    await late.until("reset")
    await parrot(tab, b"new")
    assert tab.output == b"againnew"


async def test_a_plain_client_is_shown_out_at_the_end_and_starts_anew_by_coming_back(awake: World) -> None:
    tab = await linked_tab(awake, dialect="plain")
    tab.type("grün".encode())
    await tab.met(lambda: "".join(tab.texts) == "grün", "the echo")
    tab.type(b"quit")
    assert await tab.until_closed() == 1000
    again = await linked_tab(awake, dialect="plain")
    again.type(b"new")
    await again.met(lambda: "".join(again.texts).endswith("new"), "the echo")
    assert again.closed_with is None


async def test_a_terminal_that_is_ended_shows_its_viewers_out_and_stays_ended(awake: World) -> None:
    """Its viewers once came back at once, and made another of the same name."""
    tab = await linked_tab(awake)
    await awake.fleet.sandbox("s").terminals().end("main")
    assert await tab.until_closed() == 1000
    assert tab.seen("exit")
    await asyncio.sleep(60)
    assert awake.sandbox().terminals == {}


async def test_a_drain_sends_viewers_away_to_come_back(awake: World) -> None:
    tab = await linked_tab(awake)
    asleep = await awake.create("other")
    await asleep.wake()
    await asleep.sleep()
    sleeper = await terminal_tab(awake, "other")
    await sleeper.until("status", status="sleeping")
    await awake.sessions.drain.run()
    assert await tab.until_closed() == await sleeper.until_closed() == 1012
    late = TerminalTab(awake, tab.actor)
    assert await late.until_closed() == 1012
    assert awake.sandbox().alive, "sandboxes stay"


async def test_delete_ends_viewers_for_good(awake: World) -> None:
    tab, viewer = await linked_tab(awake), await linked_tab(awake, role="view")
    await (await awake.actor()).destroy(False)
    assert await tab.until_closed() == await viewer.until_closed() == 1000


def fail() -> NoReturn:
    raise RuntimeError("injected")


async def test_a_session_that_crashes_tells_its_viewers_to_come_back(awake: World) -> None:
    tab = await linked_tab(awake)
    place = tab.position
    actor = await awake.actor()
    actor.post(fail)
    assert await tab.until_closed() == 1011
    late = TerminalTab(awake, actor)
    assert await late.until_closed() == 1011
    tab = await linked_tab(awake, after=place)
    await parrot(tab, b"on it goes")
    assert tab.actor is not actor


async def test_a_session_that_moved_tells_its_viewers_so(awake: World) -> None:
    tab = await linked_tab(awake)
    chat = await awake.welcomed()
    await awake.steal()
    chat.say("anything")
    assert await tab.until_closed() == 4409


async def test_what_is_typed_behind_a_goodbye_wakes_nobody(awake: World) -> None:
    """A client's last keys, sent before it had read the close, once woke the session it was closed out of."""
    actor = await awake.actor()
    await actor.sleep()
    tab = await terminal_tab(awake)
    await tab.until("status", status="sleeping")
    tab.socket.close(4408, "as you wish")
    tab.type(b"too late")
    await asyncio.sleep(60)
    assert not awake.sandbox().alive


# Who is there


async def test_viewers_are_counted_with_the_others(awake: World) -> None:
    actor = await awake.actor()
    chat = await awake.welcomed()
    await awake.fleet.sandbox("s").terminals().create("second", TerminalWish())
    one, two = await linked_tab(awake), await linked_tab(awake, name="second", role="view")
    await awake.until(lambda: actor.describe()["viewers"] == 3, "all three")
    assert awake.sessions.stats()["terminal_viewers"] == 2
    two.leave()
    await awake.until(lambda: actor.describe()["viewers"] == 2, "one less")
    chat.leave()
    one.leave()
    await awake.until(lambda: actor.describe()["viewers"] == 0, "nobody")
    assert {found["name"] for found in await actor.terminals.describe() or []} == {"main", "second"}


async def test_when_the_last_viewer_leaves_the_workspace_is_kept(awake: World) -> None:
    actor = await awake.actor()
    one, two = await linked_tab(awake), await linked_tab(awake)
    await actor.sync(wait=True)
    generation = actor.describe()["sync"]["generation"]
    awake.sandbox().write(b"workspace/new", b"typed into an editor")
    one.leave()
    await asyncio.sleep(0.5)
    assert actor.describe()["sync"]["generation"] == generation
    two.leave()
    await awake.until(lambda: actor.describe()["sync"]["generation"] > generation, "the sync", within=0.5)


async def test_typing_keeps_a_session_awake_and_watching_does_not(awake: World) -> None:
    actor = await awake.actor()
    tab = await linked_tab(awake)
    for _ in range(10):
        tab.type(b".")
        await asyncio.sleep(300)
    assert actor.describe()["status"] == "running"
    for _ in range(3):
        terminal(awake).write(b"output is no sign of anybody")
        await asyncio.sleep(90)
    await tab.until("status", status="sleeping", within=60)


async def test_what_a_viewer_types_keeps_nobody_awake() -> None:
    async with World(limits=SessionLimits(sleep_after=60)) as world:
        await (await world.create()).wake()
        await world.fleet.sandbox("s").terminals().create("main", TerminalWish())
        tab = await linked_tab(world, role="view")
        for _ in range(20):
            tab.type(b".")
            await asyncio.sleep(10)
        await tab.until("status", status="sleeping", within=60)


async def test_who_only_views_sees_and_does_nothing(awake: World) -> None:
    driver = await linked_tab(awake, size=Size(100, 30))
    viewer = await linked_tab(awake, role="view", size=Size(10, 5))
    assert (viewer.seen("ready")[0]["cols"], viewer.seen("ready")[0]["rows"]) == (100, 30)
    viewer.type(b"not mine")
    viewer.say("resize", cols=11, rows=6)
    await asyncio.sleep(1)
    await parrot(driver, b"mine")
    await viewer.shows(b"mine")
    assert viewer.output == driver.output == b"mine"
    assert not driver.seen("resize")


async def test_who_only_views_starts_no_terminal_and_sees_it_when_somebody_else_does(awake: World) -> None:
    """Whoever was let in to look once started a shell by naming it, and so could use up all there may be."""
    viewer = await terminal_tab(awake, role="view")
    await viewer.until("error", code="unknown_terminal")
    await asyncio.sleep(60)
    assert awake.sandbox().terminals == {}
    assert len(viewer.seen("error")) == 1
    driver = await linked_tab(awake)
    await parrot(driver, b"begun")
    await viewer.shows(b"begun")


async def test_terminals_of_a_session_are_apart(awake: World) -> None:
    one, two = await linked_tab(awake, name="one"), await linked_tab(awake, name="two")
    await parrot(one, b"of the first")
    await parrot(two, b"of the second")
    assert (one.output, two.output) == (b"of the first", b"of the second")


async def test_viewers_come_and_go_and_leave_nothing_behind(awake: World) -> None:
    actor = await awake.actor()
    keeper = await linked_tab(awake)
    for number in range(5):
        tabs = [await linked_tab(awake) for _ in range(5)]
        await parrot(tabs[number], b"<%d>" % number)
        for tab in tabs:
            await tab.shows(b"<%d>" % number)
            tab.leave()
        await awake.until(lambda: len(actor.terminals) == 1 and len(terminal(awake).links) == 1, "everybody's leave")
    assert keeper.output == b"<0><1><2><3><4>"
    assert not keeper.seen("reset")


# Passes


async def test_a_token_is_warned_of_renewed_and_in_the_end_over(awake: World) -> None:
    tab = await linked_tab(awake, token_seconds=120)
    await tab.until("auth_expiring", within=61)
    tab.say("auth", token=tab.token(ttl=300))
    await asyncio.sleep(200)
    assert tab.closed_with is None
    await tab.until("auth_expiring", count=2, within=60)
    tab.say("auth", token=tab.token("eva"))
    await tab.until("error", code="other_user")
    tab.say("auth", token="x.y.z")
    await tab.until("error", code="token_invalid")
    assert await tab.until_closed(within=120) == 4401


async def test_the_pass_of_somebody_who_left_ends_with_it(awake: World) -> None:
    tab = await linked_tab(awake, token_seconds=70)
    tab.leave()
    await asyncio.sleep(300)
    assert not tab.seen("auth_expiring")
    assert tab.closed_with is None
