"""What is typed into a terminal whose sandbox sleeps, starts, fails or dies: typed in order and once, or dropped with a
word."""

import asyncio

import pytest
from structlog.testing import capture_logs

from gateway.limits.start_queue import StartLimits
from gateway.protocol.errors import ApiError
from gateway.session.model.ports import SessionLimits
from gateway.terminal.type_ahead import MAX_BYTES
from sandbox.ports.tree import TreeFailed
from sandbox.protocol.websocket_frames import BINARY, client_frame
from tests.support.sessions import World
from tests.support.terminal_tabs import TerminalTab, linked_tab, terminal_tab

pytestmark = pytest.mark.virtual_time

LINE = b"echo hello\n"


@pytest.fixture
async def awake(world: World) -> World:
    """A world with one session, whose sandbox runs."""
    await (await world.create()).wake()
    return world


@pytest.fixture
async def asleep(awake: World) -> World:
    await (await awake.actor()).sleep()
    return awake


async def sleeping_tab(world: World, **wish: str) -> TerminalTab:
    tab = await terminal_tab(world, **wish)
    if wish.get("dialect") != "plain":
        await tab.until("status", status="sleeping")
    return tab


def typed(world: World) -> bytes:
    """All that the program of the terminal was given: it repeats it."""
    (terminal,) = world.sandbox().terminals.values()
    return bytes(terminal.picture()).replace(b"\r", b"")


async def test_a_line_typed_key_by_key_is_typed_whole(asleep: World) -> None:
    """The first key was once eaten: `cho hello` ran."""
    asleep.fleet.start_seconds = 5.0
    tab = await sleeping_tab(asleep)
    for key in LINE:
        tab.type(bytes([key]))
        await asyncio.sleep(0.1)
    await tab.shows(LINE)
    assert tab.output == LINE
    assert not tab.seen("error")


async def test_a_line_in_one_frame_is_typed_on_the_plain_dialect(asleep: World) -> None:
    """It once vanished without a sign."""
    tab = await sleeping_tab(asleep, dialect="plain")
    tab.type(LINE)
    await tab.met(lambda: "".join(tab.texts).endswith("echo hello\n"), "the echo")
    assert "".join(tab.texts).count("hello") == 1


async def falling_asleep(world: World) -> asyncio.Future[object]:
    """The session is put to sleep: its programs were hung up, and the last sync is under way."""
    actor, sandbox = await world.actor(), world.sandbox()
    sandbox.roots.step_seconds = 5.0
    sleeping: asyncio.Future[object] = asyncio.ensure_future(actor.sleep())
    await world.until(lambda: "quiet" in sandbox.roots.steps, "the end of all programs")
    sandbox.terminals["main"].exit(None, "SIGHUP")
    await asyncio.sleep(1)
    return sleeping


@pytest.mark.parametrize("dialect", ["native", "plain"])
async def test_a_line_typed_while_the_session_falls_asleep_is_typed_into_the_next_program(
    awake: World, dialect: str
) -> None:
    """Its program was hung up, and the bridge was still there: the line went to nobody."""
    tab = await linked_tab(awake, dialect=dialect)
    sleeping = await falling_asleep(awake)
    for key in LINE:
        tab.type(bytes([key]))
        await asyncio.sleep(0.1)
    assert not sleeping.done()
    assert not awake.sandbox().terminals["main"].alive, "nothing was typed into it"
    await sleeping
    await tab.met(lambda: (tab.output or "".join(tab.texts).encode()).endswith(LINE), "the echo")
    assert typed(awake).count(b"hello") == 1
    assert not tab.seen("error")
    assert not tab.seen("exit")
    assert awake.fleet.starts == 2


async def test_a_line_typed_before_a_sleep_ends_the_program_is_typed_into_the_next(awake: World) -> None:
    """It was on its way to the program when that was ended."""
    tab = await linked_tab(awake)
    roots = awake.sandbox().roots
    roots.step_seconds = 5.0
    sleeping = asyncio.ensure_future((await awake.actor()).sleep())
    await asyncio.sleep(1)
    assert "quiet" not in roots.steps, "the program runs"
    tab.type(LINE)
    await sleeping
    await tab.met(lambda: tab.output == LINE, "the echo")
    assert not tab.seen("error")
    assert awake.fleet.starts == 2


async def test_a_line_typed_during_a_sleep_that_fails_early_is_typed_into_the_program_that_goes_on(
    awake: World,
) -> None:
    tab = await linked_tab(awake)
    roots = awake.sandbox().roots
    roots.step_seconds = 5.0
    roots.failures["quiet"] = [TreeFailed("failed", "not now")] * 9
    sleeping = asyncio.ensure_future((await awake.actor()).sleep())
    await asyncio.sleep(1)
    tab.type(LINE)
    tab.type(b"\x1b[I")  # what a terminal says by itself
    with pytest.raises(ApiError, match="not now"):
        await sleeping
    await tab.shows(LINE)
    assert tab.output == LINE
    assert not tab.seen("exit")
    assert not tab.seen("reset")
    awake.sandbox().terminals["main"].write(b"!")
    await tab.shows(b"!")


@pytest.mark.parametrize("dialect", ["native", "plain"])
async def test_a_line_typed_during_a_sleep_that_fails_is_typed_into_the_next_program(
    awake: World, dialect: str
) -> None:
    tab = await linked_tab(awake, dialect=dialect)
    awake.sandbox().roots.failures["scan"] = [TreeFailed("failed", "not now")] * 3
    sleeping = await falling_asleep(awake)
    tab.type(LINE)
    await asyncio.sleep(1)
    assert not awake.sandbox().terminals["main"].alive, "nothing was typed into it"
    with pytest.raises(ApiError, match="not now"):
        await sleeping
    await tab.met(lambda: (tab.output or "".join(tab.texts).encode()).endswith(LINE), "the echo")
    assert len(tab.seen("exit")) == (dialect == "native")
    assert awake.fleet.starts == 1


async def test_what_comes_behind_the_handshake_of_a_sleeping_session_is_typed(asleep: World) -> None:
    tab = await terminal_tab(asleep, dialect="plain")
    tab.type(b"early ")
    tab.type(b"bird")
    await tab.met(lambda: "".join(tab.texts).endswith("early bird"), "the echo")


async def test_a_client_that_comes_back_is_greeted_with_word_that_its_program_is_gone(awake: World) -> None:
    """A client that typed while it was away must not send that: it would run in the next program."""
    place = (await linked_tab(awake)).position
    awake.fleet.link_problem = "not now"
    tab = await terminal_tab(awake, after=place)
    ready = await tab.until("ready")
    assert (ready["epoch"], ready.get("absent")) == (place.epoch, None), "it may be found again"
    awake.fleet.link_problem = None
    await (await awake.actor()).sleep()
    tab = await terminal_tab(awake, after=place)
    ready = await tab.until("ready")
    assert (ready["epoch"], ready["absent"]) == (place.epoch, True)


async def test_what_was_typed_for_a_program_that_is_gone_wakes_nobody(awake: World) -> None:
    """A client came back to where it was, and typed before it was told that the session sleeps."""
    place = (await linked_tab(awake)).position
    await (await awake.actor()).sleep()
    tab = await terminal_tab(awake, after=place)
    tab.viewer.on_frames(client_frame(BINARY, b"yes, delete it"))
    await tab.until("error", code="input_dropped")
    await asyncio.sleep(60)
    assert not awake.sandbox().alive
    tab.type(b"ls")
    await tab.shows(b"ls")
    assert tab.output == b"ls"


async def test_two_viewers_type_and_each_is_typed_whole(asleep: World) -> None:
    asleep.fleet.start_seconds = 5.0
    one, two = await sleeping_tab(asleep), await sleeping_tab(asleep)
    for first, second in zip(b"abcdef", b"uvwxyz", strict=True):
        one.type(bytes([first]))
        two.type(bytes([second]))
        await asyncio.sleep(0.1)
    await one.met(lambda: len(one.output) == 12, "both")
    assert bytes(sorted(one.output)) == b"abcdefuvwxyz"
    assert [key for key in one.output if key in b"abcdef"] == list(b"abcdef")
    assert [key for key in one.output if key in b"uvwxyz"] == list(b"uvwxyz")
    assert asleep.fleet.starts == 2, "one start for both"


async def test_who_leaves_before_the_program_is_up_types_nothing(asleep: World) -> None:
    asleep.fleet.start_seconds = 5.0
    gone, stays = await sleeping_tab(asleep), await sleeping_tab(asleep)
    gone.type(b"gone")
    await gone.until("status", status="starting")
    stays.type(b"stays")
    gone.leave()
    await stays.shows(b"stays")
    assert stays.output == b"stays"


async def test_who_leaves_takes_what_was_typed_along(asleep: World) -> None:
    """Each viewer may hold a long paste: all of one user's together are bounded, and nothing of them stays."""
    asleep.fleet.start_seconds = 60.0
    actor = await asleep.actor()
    tabs = [await sleeping_tab(asleep) for _ in range(40)]
    for tab in tabs:
        tab.type(b"x" * 1_000_000)
    await tabs[-1].until("error", code="input_full")
    assert 15_000_000 <= actor.host.pending.held <= actor.host.pending.limit
    for tab in tabs:
        tab.leave()
    await asleep.until(lambda: not len(actor.terminals), "their leaving")
    assert actor.host.pending.held == 0
    assert not any(len(tab.viewer.ahead) for tab in tabs), "it would wait for the garbage collector"


async def test_64_kib_wait_and_what_is_beyond_is_refused_with_all_that_follows(asleep: World) -> None:
    asleep.fleet.start_seconds = 5.0
    tab = await sleeping_tab(asleep)
    for number in range(80):
        tab.type(b"%04d" % number * 256)
        await asyncio.sleep(0.01)
    tab.type(b"\n")
    await tab.until("error", code="input_full")
    await tab.shows(b"0063" * 256)
    await tab.met(lambda: len(tab.output) == MAX_BYTES, "all that waited")
    tab.type(b"room again")
    await tab.shows(b"room again")
    assert tab.output == b"".join(b"%04d" % number * 256 for number in range(64)) + b"room again"
    assert len(tab.seen("error")) == 1


async def test_what_a_dialect_without_a_word_has_refused_is_logged_once(asleep: World) -> None:
    asleep.fleet.start_seconds = 5.0
    tab = await sleeping_tab(asleep, dialect="plain")
    with capture_logs() as logs:
        for _ in range(20):
            tab.type(b"x" * 16_000)
            await asyncio.sleep(0.01)
        await asyncio.sleep(10)
    (line,) = [line for line in logs if line["event"] == "terminal.input_dropped"]
    assert (line["session_id"], line["name"]) == ("s", "main")
    assert "full" in line["cause"]


async def test_what_was_typed_for_a_start_that_fails_is_dropped_with_a_word(asleep: World) -> None:
    asleep.fleet.start_failures = ["no room"]
    tab = await sleeping_tab(asleep)
    tab.type(b"wake")
    assert "did not start" in (await tab.until("error", code="input_dropped"))["error"]
    await tab.until("status", status="error")
    tab.type(b"again")
    await tab.shows(b"again")
    assert tab.output == b"again"


async def test_a_session_that_is_given_up_says_that_typing_does_not_start_it() -> None:
    async with World(limits=SessionLimits(crashes=1)) as world:
        await (await world.create()).wake()
        await (await world.actor()).sleep()
        world.fleet.start_failures = ["no room"]
        tab = await sleeping_tab(world)
        tab.type(b"wake")
        await tab.until("status", status="error")
        tab.type(b"again")
        await tab.until("error", code="input_dropped", count=2)
        assert not world.sandbox().alive
        await (await world.actor()).wake()
        tab.type(b"here")
        await tab.shows(b"here")
        assert tab.output == b"here"


async def test_a_pause_before_the_program_is_up_drops_what_waits_with_a_word(asleep: World) -> None:
    asleep.fleet.start_seconds = 5.0
    tab = await sleeping_tab(asleep)
    tab.type(b"wake")
    await tab.until("status", status="starting")
    actor = await asleep.actor()
    await actor.pause()
    await tab.until("status", status="paused")
    await tab.until("error", code="input_dropped")
    await actor.resume(None)
    tab.type(b"after")
    await tab.shows(b"after")
    assert tab.output == b"after"


async def started(world: World, session_id: str) -> None:
    actor = await world.create(session_id)
    actor.life.want_agent()
    await world.until(lambda: actor.describe()["status"] == "running", session_id)


async def test_what_is_typed_waits_in_the_queue_for_a_place_and_is_dropped_when_that_is_given_up() -> None:
    world = World()
    world.starts = StartLimits(at_once=8, at_once_per_user=8, running=1, running_per_user=1)
    async with world:
        await started(world, "s")
        await (await world.actor("s")).sleep()
        await started(world, "other")
        tab = await sleeping_tab(world)
        tab.type(LINE)
        await tab.until("status", status="starting")
        await asyncio.sleep(600)
        await (await world.actor("s")).pause()
        await tab.until("error", code="input_dropped")
        await tab.until("status", status="paused")
        tab.type(b"hello?")
        await tab.until("error", code="paused")
        await (await world.actor("other")).sleep()
        await (await world.actor("s")).resume(None)
        tab.type(b"only this")
        await tab.shows(b"only this")
        assert tab.output == b"only this"


async def test_what_waits_in_the_queue_is_typed_when_a_place_is_free() -> None:
    world = World()
    world.starts = StartLimits(at_once=8, at_once_per_user=8, running=1, running_per_user=1)
    async with world:
        await started(world, "s")
        await (await world.actor("s")).sleep()
        await started(world, "other")
        tab = await sleeping_tab(world)
        tab.type(LINE)
        await asyncio.sleep(600)
        await (await world.actor("other")).sleep()
        await tab.shows(LINE)
        assert tab.output == LINE


@pytest.mark.parametrize("dialect", ["native", "plain"])
async def test_keys_meant_for_a_program_that_died_with_its_sandbox_reach_no_other(awake: World, dialect: str) -> None:
    """Whoever answers an editor's question must not have the answer run by a shell."""
    tab = await linked_tab(awake, dialect=dialect)
    awake.fleet.start_seconds = 5.0
    awake.sandbox().crash()
    with capture_logs() as logs:
        for key in b"yes\n" * 10:
            tab.type(bytes([key]))
            await asyncio.sleep(0.1)
        await awake.until(lambda: tab.viewer.linked, "the next program")
    assert len([line for line in logs if line["event"] == "terminal.input_dropped"]) == 1
    tab.type(b"ls")
    await awake.until(lambda: b"ls" in typed(awake), "the echo")
    assert b"yes" not in typed(awake)
    if dialect == "native":
        assert 1 <= len(tab.seen("error", code="input_dropped")) <= 2


async def test_who_comes_while_a_sandbox_is_started_after_a_crash_types_into_the_next_program(awake: World) -> None:
    await linked_tab(awake)
    awake.fleet.start_seconds = 5.0
    awake.sandbox().crash()
    await asyncio.sleep(1)
    tab = await terminal_tab(awake)
    tab.type(b"new here")
    await tab.shows(b"new here")


async def test_keys_meant_for_a_program_that_was_replaced_while_the_link_was_away_reach_no_other(awake: World) -> None:
    tab = await linked_tab(awake)
    awake.fleet.link_problem = "not now"
    terminal = awake.sandbox().terminals["main"]
    for link in list(terminal.links.values()):
        link.lose("cut by the test")
    await asyncio.sleep(0)
    tab.type(b"yes")
    await asyncio.sleep(1)
    terminal.begin()
    awake.fleet.link_problem = None
    await tab.until("error", code="input_dropped")
    tab.type(b"ls")
    await tab.shows(b"ls")
    assert tab.output == b"ls"


async def test_what_is_typed_while_a_lost_sandbox_is_looked_for_wakes_the_session(awake: World) -> None:
    await awake.kill()
    awake.sandbox().crash()
    awake.fleet.link_problem = "not now"
    await awake.open()
    tab = await terminal_tab(awake)
    tab.type(b"anybody?")
    awake.fleet.link_problem = None
    await tab.shows(b"anybody?")
    assert tab.output == b"anybody?"


async def test_what_a_terminal_says_by_itself_is_not_typed_into_the_next_program(asleep: World) -> None:
    asleep.fleet.start_seconds = 5.0
    tab = await sleeping_tab(asleep)
    for said in (b"l", b"\x1b[I", b"\x1b[<35;10;10M", b"s"):
        tab.type(said)
    await tab.shows(b"ls")
    assert tab.output == b"ls"
