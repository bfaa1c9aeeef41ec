"""What every provider's terminals promise. An adapter's test class inherits this and gives `terminals`, those of a
sandbox that runs, and `absent`, those of one that does not.

The program in these tests is a parrot: it says `hi`, then it writes what is typed, and `quit` ends it with code 3.
"""

import itertools
import sys
from collections.abc import AsyncIterator
from random import Random

import pytest

from sandbox.ports.link import LinkRefused
from sandbox.ports.terminals import SandboxTerminals, TerminalRefused, TerminalWish
from sandbox.protocol.terminal import Exit, Open, Size
from sandbox.protocol.values import Position
from tests.support.terminal_watcher import Watcher, watch
from tests.support.waiting import until

PARROT = """
import os, sys, termios, tty
tty.setraw(0, termios.TCSADRAIN)  # what was typed before it began is for it
os.write(1, os.environ["PARROT_SAYS"].encode())
while (heard := os.read(0, 65536)) != b"quit":
    os.write(1, heard)
sys.exit(3)
"""
WISH = TerminalWish(command=(sys.executable, "-c", PARROT), env={"PARROT_SAYS": "hi"})
NUMBERS = itertools.count(1)


async def join(terminals: SandboxTerminals, name: str, size: Size | None = None) -> Watcher:
    """At a parrot that listens."""
    watcher = await watch(terminals, name, size=size)
    await watcher.shows(b"hi")
    return watcher


async def say(watcher: Watcher, words: bytes) -> None:
    """Type it, and wait until it has come back."""
    end = watcher.position.offset + len(words)
    watcher.type(words)
    await until(lambda: watcher.position.offset >= end)
    assert watcher.output.endswith(words)


async def quit(watcher: Watcher) -> None:
    exits = len(watcher.exits)
    watcher.type(b"quit")
    await until(lambda: len(watcher.exits) > exits)


async def described(terminals: SandboxTerminals, name: str) -> dict[str, object]:
    return next(each for each in await terminals.list() if each["name"] == name)


async def watched_by(terminals: SandboxTerminals, name: str, count: int) -> None:
    """Wait until so many look at it. What those who left had sent before was dealt with by then."""

    async def there() -> bool:
        return (await described(terminals, name))["viewers"] == count

    await until(there, f"{count} at {name}")


class SandboxTerminalsContract:
    @pytest.fixture
    async def name(self, terminals: SandboxTerminals) -> AsyncIterator[str]:
        """A parrot of the test's own."""
        name = f"parrot-{next(NUMBERS)}"
        assert await terminals.create(name, WISH)
        yield name
        if any(each["name"] == name for each in await terminals.list()):
            await terminals.end(name)

    async def test_a_sandbox_that_does_not_run_has_none(self, absent: SandboxTerminals) -> None:
        for asked in (
            absent.open("main", Open.of(None, "drive", None), Watcher(), lambda frames: None),
            absent.list(),
            absent.create("main", TerminalWish()),
            absent.resize("main", Size(80, 24)),
            absent.end("main"),
        ):
            with pytest.raises(LinkRefused):
                await asked

    async def test_opening_makes_a_terminal(self, terminals: SandboxTerminals) -> None:
        name = f"made-{next(NUMBERS)}"
        watcher = await watch(terminals, name, size=Size(100, 30))
        assert (watcher.hello.offset, watcher.hello.size, watcher.hello.picture) == (0, Size(100, 30), False)
        found = await described(terminals, name)
        assert (found["epoch"], found["cols"], found["rows"]) == (watcher.hello.epoch, 100, 30)
        assert (found["viewers"], found["alive"], found["exit"]) == (1, True, None)
        watcher.leave()
        await terminals.end(name)

    async def test_looking_makes_none(self, terminals: SandboxTerminals) -> None:
        watcher = Watcher()
        with pytest.raises(LinkRefused):
            await terminals.open("nobodys", Open.of(None, "view", None), watcher, watcher.pass_on)
        assert [trouble.code for trouble in watcher.troubles] == ["unknown_terminal"]
        assert "nobodys" not in [each["name"] for each in await terminals.list()]

    async def test_what_is_typed_comes_back_in_order(self, terminals: SandboxTerminals, name: str) -> None:
        watcher = await join(terminals, name)
        assert watcher.link is not None
        for words in (b"one", "grün 日本".encode(), b"\r\n\x00\xff\x80"):
            await say(watcher, words)
        assert watcher.link.passed_bytes == len(watcher.output)
        whole = watcher.position
        again = await watch(terminals, name, after=Position(whole.epoch, 0))
        assert await until(lambda: again.position == whole)
        assert again.output == b"hione" + "grün 日本".encode() + b"\r\n\x00\xff\x80"
        for each in (watcher, again):
            each.leave()

    async def test_everybody_gets_what_the_program_writes(self, terminals: SandboxTerminals, name: str) -> None:
        first, second = await join(terminals, name), await join(terminals, name)
        await say(first, b"said by the first")
        await second.shows(b"said by the first")
        await say(second, b"said by the second")
        await first.shows(b"said by the second")
        assert (await described(terminals, name))["viewers"] == 2
        first.leave()
        await watched_by(terminals, name, 1)
        await say(second, b"alone")
        second.leave()
        assert not first.lost + second.lost, "who leaves is not told that the link is lost"

    async def test_a_resume_is_byte_exact_from_any_offset(self, terminals: SandboxTerminals, name: str) -> None:
        watcher = await join(terminals, name)
        rng = Random(1)
        for _ in range(20):
            await say(watcher, bytes(rng.choices(b"abcdefghij \r\n", k=rng.randint(1, 100))))
        epoch, end = watcher.position.epoch, watcher.position.offset
        said = (await self._since(terminals, name, Position(epoch, 0))).output
        assert len(said) == end
        for offset in (0, 1, *rng.sample(range(2, end), 5), end - 1, end):
            again = await self._since(terminals, name, Position(epoch, offset))
            assert (again.hello.offset, again.hello.replayed, again.picture) == (offset, end - offset, None)
            assert again.output == said[offset:]
        watcher.leave()

    async def _since(self, terminals: SandboxTerminals, name: str, after: Position) -> Watcher:
        """Somebody who came, saw everything since then, and left."""
        watcher = await watch(terminals, name, after=after)
        await until(lambda: len(watcher.output) >= watcher.hello.replayed)
        watcher.leave()
        return watcher

    async def test_whoever_was_elsewhere_or_nowhere_gets_a_picture(
        self, terminals: SandboxTerminals, name: str
    ) -> None:
        watcher = await join(terminals, name)
        await say(watcher, b"on the screen")
        epoch, end = watcher.position.epoch, watcher.position.offset
        for after in (None, Position("of-another-process", 3), Position(epoch, end + 1000)):
            late = await watch(terminals, name, after=after)
            assert (late.hello.epoch, late.hello.offset, late.hello.replayed) == (epoch, end, 0)
            assert late.picture is not None
            assert b"hion the screen" in late.picture
            await say(late, b".")
            end += 1
            assert late.output == b".", "a picture is not counted"
            late.leave()
        watcher.leave()

    async def test_an_exit_is_told_also_to_whoever_comes_later(self, terminals: SandboxTerminals, name: str) -> None:
        watcher = await join(terminals, name)
        await say(watcher, b"last words")
        place = watcher.position
        await quit(watcher)
        assert watcher.exits == [Exit(3, None)]
        found = await described(terminals, name)
        assert (found["alive"], found["exit"]) == (False, {"code": 3, "signal": None})
        late, back = await watch(terminals, name), await watch(terminals, name, after=place)
        await until(lambda: late.exits and back.exits)
        assert late.exits == back.exits == watcher.exits
        assert late.order == back.order == ["hello", "exit"]
        assert b"last words" in (late.picture or b"")
        assert back.picture is None
        for each in (watcher, late, back):
            each.leave()

    async def test_typing_starts_what_ended_anew_and_is_typed_into_it(
        self, terminals: SandboxTerminals, name: str
    ) -> None:
        """The first key was once eaten, and so was a whole line that was pasted."""
        watcher, other = await join(terminals, name), await join(terminals, name)
        first = watcher.hello.epoch
        await quit(watcher)
        watcher.type(b"again")
        await until(lambda: watcher.resets and other.resets)
        for each in (watcher, other):
            await each.shows(b"hiagain")
        assert watcher.resets[0].epoch not in (first, "")
        await say(watcher, b"new")
        await other.shows(b"new")
        assert (await described(terminals, name))["exit"] is None
        for each in (watcher, other):
            each.leave()

    async def test_whoever_wants_it_anew_starts_it_by_coming(self, terminals: SandboxTerminals, name: str) -> None:
        watcher = await join(terminals, name)
        await quit(watcher)
        again = await watch(terminals, name, anew=True)
        assert again.hello.epoch != watcher.hello.epoch
        await until(lambda: watcher.resets)
        await again.shows(b"hi")
        assert not again.exits
        also = await watch(terminals, name, anew=True)
        assert also.hello.epoch == again.hello.epoch, "what runs is not started"
        for each in (watcher, again, also):
            each.leave()

    async def test_the_size_is_that_of_who_typed_last_and_told_to_all(
        self, terminals: SandboxTerminals, name: str
    ) -> None:
        first = await join(terminals, name, Size(100, 30))
        assert first.hello.size == Size(100, 30)
        second = await join(terminals, name, Size(90, 20))
        assert second.hello.size == Size(100, 30), "the first has the say until somebody types"
        await say(second, b".")
        await until(lambda: first.sizes and second.sizes)
        assert first.sizes == second.sizes == [Size(90, 20)]
        second.resize(70, 10)
        await until(lambda: len(first.sizes) == 2 and len(second.sizes) == 2)
        assert first.sizes[-1] == second.sizes[-1] == Size(70, 10)
        found = await described(terminals, name)
        assert (found["cols"], found["rows"]) == (70, 10)
        await terminals.resize(name, Size(60, 15))
        await until(lambda: len(first.sizes) == 3)
        assert first.sizes[-1] == Size(60, 15)
        for each in (first, second):
            each.leave()

    async def test_who_only_views_neither_types_nor_sizes_nor_starts(
        self, terminals: SandboxTerminals, name: str
    ) -> None:
        driver = await join(terminals, name, Size(100, 30))
        viewer = await watch(terminals, name, role="view", size=Size(10, 5))
        assert viewer.hello.size == Size(100, 30)
        viewer.type(b"not for you")
        viewer.resize(11, 6)
        viewer.leave()
        await watched_by(terminals, name, 1)
        await say(driver, b"mine")
        assert b"not" not in driver.output
        assert not driver.sizes
        await quit(driver)
        viewer = await watch(terminals, name, role="view")
        await until(lambda: viewer.exits)
        viewer.type(b"start")
        viewer.leave()
        await watched_by(terminals, name, 1)
        assert (await described(terminals, name))["alive"] is False
        driver.leave()

    async def test_one_that_is_paused_misses_nothing(self, terminals: SandboxTerminals, name: str) -> None:
        slow, quick = await join(terminals, name), await join(terminals, name)
        assert slow.link is not None
        slow.link.pause_reading()
        seen = slow.position
        await say(quick, b"meanwhile")
        assert slow.position == seen
        slow.link.resume_reading()
        await slow.shows(b"meanwhile")
        for each in (slow, quick):
            each.leave()

    async def test_making_one_that_is_there_changes_nothing(self, terminals: SandboxTerminals, name: str) -> None:
        watcher = await join(terminals, name)
        assert await terminals.create(name, TerminalWish()) is False
        assert await terminals.create(name, WISH) is False
        with pytest.raises(TerminalRefused) as refused:
            await terminals.create(name, TerminalWish(command=("cat",)))
        assert (refused.value.status, refused.value.code) == (409, "conflict")
        found = await described(terminals, name)
        assert (found["epoch"], found["command"]) == (watcher.hello.epoch, list(WISH.command or ()))
        watcher.leave()

    async def test_making_one_that_ended_runs_it_again(self, terminals: SandboxTerminals, name: str) -> None:
        watcher = await join(terminals, name)
        await quit(watcher)
        assert await terminals.create(name, TerminalWish()) is True
        await until(lambda: watcher.resets)
        await watcher.shows(b"hi")
        assert (await described(terminals, name))["command"] == list(WISH.command or ())
        watcher.leave()

    async def test_one_is_made_with_a_size(self, terminals: SandboxTerminals) -> None:
        name = f"sized-{next(NUMBERS)}"
        assert await terminals.create(name, TerminalWish(WISH.command, WISH.env, size=Size(33, 12)))
        found = await described(terminals, name)
        assert (found["cols"], found["rows"], found["viewers"]) == (33, 12, 0)
        await terminals.end(name)

    async def test_one_that_is_ended_is_gone_and_its_viewers_are_told(
        self, terminals: SandboxTerminals, name: str
    ) -> None:
        watcher, viewer = await join(terminals, name), await watch(terminals, name, role="view")
        await terminals.end(name)
        await until(lambda: watcher.gone and viewer.gone)
        assert watcher.order[-2:] == viewer.order[-2:] == ["exit", "gone"]
        assert name not in [each["name"] for each in await terminals.list()]
        watcher.type(b"to nobody")
        watcher.resize(1, 1)
        watcher.leave()

    async def test_what_is_not_there_is_not_found(self, terminals: SandboxTerminals) -> None:
        for asked in (terminals.resize("nobodys", Size(80, 24)), terminals.end("nobodys")):
            with pytest.raises(TerminalRefused) as refused:
                await asked
            assert (refused.value.status, refused.value.code) == (404, "unknown_terminal")
