"""The configuration of an agent's user in the agent's home: a real bridge writes it before each start."""

import os
import stat
from pathlib import Path

from sandbox.bridge.agent.home import CONFIGURED
from sandbox.protocol.agent import AgentSetup, SetupFile
from tests.sandbox.bridge.agent.test_core_effects import Session, attached, launched
from tests.sandbox.bridge.agent.test_cores import turns
from tests.support.waiting import until

TWO = AgentSetup((SetupFile(".a/one.md", "één"), SetupFile(".a/b/two.md", "2")), ("-c", "x=1"))


async def configured(session: Session, setup: AgentSetup) -> None:
    session.link.configure(lambda: setup)
    await session.run_and_end("say x")


async def test_files_are_written_for_their_owner_alone_and_words_are_added(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        await configured(session, TWO)
        assert (tmp_path / ".a/one.md").read_text() == "één"
        assert (tmp_path / ".a/b/two.md").read_text() == "2"
        assert stat.S_IMODE((tmp_path / ".a/one.md").stat().st_mode) == 0o600
        assert "'-c', 'x=1'" in launched(bridge)


async def test_what_is_in_the_next_one_no_more_goes_and_what_the_agent_wrote_stays(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        await configured(session, TWO)
        (tmp_path / ".a/own.md").write_text("the agent's own")
        await configured(session, AgentSetup((SetupFile(".a/one.md", "anew"),)))
        assert sorted(each.name for each in (tmp_path / ".a").rglob("*.md")) == ["one.md", "own.md"]
        assert (tmp_path / ".a/one.md").read_text() == "anew"
        await configured(session, AgentSetup())
        assert [each.name for each in (tmp_path / ".a").rglob("*.md")] == ["own.md"]


async def test_a_link_out_of_the_home_is_not_followed_and_the_agent_says_so(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "precious.md").write_text("stays")
    with turns(home) as bridge:
        session = await attached(bridge)
        (home / ".a").symlink_to(outside)
        (home / ".holdfast").mkdir(exist_ok=True)
        (home / CONFIGURED).write_text(
            '["../outside/precious.md", ".a/precious.md", "/etc/passwd", "x", 5, "a/\\u0000"]'
        )
        session.link.configure(lambda: TWO)
        session.link.start(None)
        await until(lambda: session.owner.problems)
        assert "HOME/.a/one.md" in session.owner.problems[0]
        assert os.listdir(outside) == ["precious.md"]


async def test_a_list_that_is_none_is_empty(tmp_path: Path) -> None:
    with turns(tmp_path) as bridge:
        session = await attached(bridge)
        (tmp_path / ".holdfast").mkdir(exist_ok=True)
        for content in ("{", "5", '{"a": 1}'):
            (tmp_path / CONFIGURED).write_text(content)
            await configured(session, AgentSetup((SetupFile(".a/one.md", content),)))
            assert (tmp_path / ".a/one.md").read_text() == content
