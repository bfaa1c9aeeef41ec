"""The session's task is the only one that changes what the session keeps: whatever is asked goes through the inbox."""

import asyncio
from typing import Any

import pytest

from gateway.session import upkeep
from gateway.session.conversation.log import SessionLog
from gateway.session.model.state import Wish
from tests.support.sessions import World

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Who wrote, and what: the names of tasks and of the first thing that changed."""
    noted: list[tuple[str, str]] = []
    write, touch = SessionLog.write, SessionLog.touch

    def note(what: str) -> None:
        task = asyncio.current_task()
        noted.append(("" if task is None else task.get_name(), what))

    def noted_write(self: SessionLog, *arguments: Any, **changes: Any) -> None:
        note("write " + " ".join(sorted(changes)))
        write(self, *arguments, **changes)

    def noted_touch(self: SessionLog) -> None:
        note("touch")
        touch(self)

    monkeypatch.setattr(SessionLog, "write", noted_write)
    monkeypatch.setattr(SessionLog, "touch", noted_touch)
    return noted


async def test_whatever_is_asked_one_task_writes(writers: list[tuple[str, str]]) -> None:
    async with World() as world:
        actor = await world.create()
        tab = await world.welcomed()
        tab.say("one")
        await tab.until("done")
        await actor.change({"title": "a name"})
        share = await actor.sharing.add("a guest", now=0.0, expires_at=1e12)
        await actor.sharing.take_back(share.number)
        await actor.abort()
        await actor.sync(wait=True)
        number = actor.describe()["sync"]["generation"]
        await actor.pause()
        await actor.put_back(number)
        await actor.resume({"SECRET": "something long"})
        await actor.intake.post_record(
            role="user", type="message", content="two", metadata=None, cid="two", deliver=True
        )
        await tab.until("done", count=2)
        await actor.destroy(purge=False)
        await upkeep.take_up(actor, Wish(title="again", by_service=True, network="none"))
        await world.leave()
    assert {task for task, _ in writers} == {"session s"}
    assert {what for _, what in writers} >= {"touch", "write spec", "write state"}
