"""Waiting, see tests/support/waiting.py: all tests lean on it."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.support.waiting import blocking_until, until, whole_lines

pytestmark = pytest.mark.virtual_time


async def test_what_is_found_is_returned_whether_the_look_is_sync_or_async() -> None:
    looks = iter(["", None, "found"])

    async def look() -> str | None:
        return next(looks)

    assert await until(look) == "found"
    numbers = iter([0, 0, 7])
    assert await until(lambda: next(numbers)) == 7
    numbers = iter([0, 0, 7])
    assert blocking_until(lambda: next(numbers)) == 7


async def test_what_cannot_be_read_yet_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "told"

    def look() -> int:
        told = json.loads(file.read_text())
        assert told["answer"] == 42
        return int(told["answer"])

    waiting = asyncio.create_task(until(look, "the answer"))
    for text in (None, "", '{"ans', '{"answer": 41}', '{"answer": 42}'):
        if text is not None:
            file.write_text(text)
        await asyncio.sleep(1)
        assert waiting.done() == (text == '{"answer": 42}')
    assert await waiting == 42
    assert blocking_until(look) == 42


async def test_what_never_comes_is_told_with_the_last_error() -> None:
    def look() -> bool:
        raise ValueError("half a line")

    with pytest.raises(AssertionError, match=r"^never within 60 s: the answer; last: ValueError\('half a line'\)$"):
        await until(look, "the answer")
    assert asyncio.get_running_loop().time() == pytest.approx(60, abs=1)
    with pytest.raises(AssertionError, match=r"^never within 5 s: as it is now$"):
        await until(lambda: False, lambda: "as it is now", within=5)
    with pytest.raises(AssertionError, match=r"^never within 0 s: it; last: ValueError\('half a line'\)$"):
        blocking_until(look, within=0)


async def test_any_other_error_ends_the_waiting_at_once() -> None:
    async def look() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await until(look)
    empty: dict[str, int] = {}
    with pytest.raises(KeyError):
        await until(lambda: empty["no such"])


def test_there_is_one_until_for_all_tests() -> None:
    found = [
        path
        for path in Path(__file__).parent.rglob("*.py")
        if re.search(r"(?m)^(async )?def until\b", path.read_text())
    ]
    assert [path.name for path in found] == ["waiting.py"]


def test_lines_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    assert whole_lines(file) == []
    file.write_bytes("one\ntwo ü\nthr".encode())
    assert whole_lines(file) == ["one", "two ü"]
