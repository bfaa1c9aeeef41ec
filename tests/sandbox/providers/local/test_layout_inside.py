"""What programs in a contained sandbox find at `/workspace` and `/agent`: real directories, also after a restore."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports.link import Link
from sandbox.ports.sandbox import SandboxFailed
from sandbox.ports.tree import LiveFile, SandboxTree
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.local.layout import SandboxHome
from sandbox.tree.kept_roots import MOST_NAMES, ROOTS, is_plain
from sandbox.tree.root_swap import TRASH, staging_name
from tests.contract.sandbox import attach
from tests.contract.sandbox_tree import restore, scan
from tests.sandbox.local import command, opened, python, spec
from tests.support.bridge import Owner
from tests.support.terminal_watcher import watch
from tests.support.waiting import until

AGENT = """
import json, mmap, os, sys
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""
WHERE = """[os.getcwd(), os.path.realpath("."), os.path.realpath("/workspace"), os.path.realpath(os.environ["HOME"]),
 os.path.ismount("/workspace"), os.path.ismount("/agent"), os.path.islink("/workspace")]""".replace("\n", "")
HERE = ["/workspace", "/workspace", "/workspace", "/agent", True, True, False]


class Inside:
    """The agent of `s1`, which evaluates what it is sent."""

    def __init__(self, link: Link, owner: Owner) -> None:
        self._link = link
        self._owner = owner

    async def evaluates(self, expression: str) -> Any:
        count = len(self._owner.lines())
        self._link.inject(expression.encode())
        await until(lambda: len(self._owner.lines()) > count)
        return json.loads(self._owner.lines()[-1])


async def begin(fleet: LocalFleet) -> Inside:
    owner = Owner()
    link = await attach(fleet, owner)
    link.start(b"0")
    await until(lambda: owner.epochs and owner.lines() == [b"0"])
    return Inside(link, owner)


async def typed(fleet: LocalFleet, line: str, answer: str) -> None:
    """Type into a new terminal, and wait for an answer that is not an echo."""
    terminals = fleet.sandbox("s1").terminals()
    watcher = await watch(terminals, "t")
    await until(lambda: watcher.output.rstrip().endswith((b"$", b"#")))
    watcher.type(f"{line}\r".encode())
    await watcher.shows(answer.encode())
    await terminals.end("t")


async def everybody_is_in_workspace(fleet: LocalFleet, inside: Inside) -> None:
    assert await inside.evaluates(WHERE) == HERE
    shell = "echo $(pwd) $(pwd -P) $(readlink -f .) $(readlink -f ~) $(cd src && pwd -P)"
    told = await command(fleet, "s1", ["sh", "-c", shell])
    assert told.stdout == "/workspace /workspace /workspace /agent /workspace/src\n"
    await typed(fleet, "echo =$(pwd)=$(pwd -P)=$(readlink -f ~)=", "=/workspace=/workspace=/agent=")


async def live(fleet: LocalFleet, path: bytes, root: bytes = b"workspace") -> bytes:
    file = await fleet.sandbox("s1").files(root, path)
    assert isinstance(file, LiveFile)
    return b"".join([piece async for piece in file.content])


async def restored(tree: SandboxTree, home: SandboxHome, *, aside: bool = True) -> None:
    """Put a kept tree in the place of one that programs have seen."""
    (home.workspace / "src").mkdir()
    (home.workspace / "src" / "a").write_text("kept")
    (home.agent / "memory").write_text("kept")
    kept = await scan(tree, remember="first")
    for root in (home.workspace, home.agent):
        shutil.rmtree(root / "src", ignore_errors=True)
    (home.agent / "memory").unlink()
    (home.workspace / "stray").write_text("lost")
    await restore(tree, kept, "first", aside=aside)


async def test_programs_are_in_workspace_by_its_real_path(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec(agent=python(AGENT)))
        (SandboxHome(tmp_path, "s1").workspace / "src").mkdir()
        await everybody_is_in_workspace(fleet, await begin(fleet))


async def test_after_a_restore_and_a_new_start_everybody_sees_it_at_the_same_path(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        home, tree = SandboxHome(tmp_path, "s1"), fleet.sandbox("s1").tree()
        await fleet.start(spec(agent=python(AGENT), hold=True))
        await restored(tree, home)
        assert fleet.sandbox("s1").mounts_roots
        await fleet.start(spec(agent=python(AGENT), hold=True))
        survey = await tree.survey(())
        assert (survey.known, survey.changed, survey.files) == ("first", 0, 2)
        await tree.release()
        inside = await begin(fleet)
        await everybody_is_in_workspace(fleet, inside)
        assert await inside.evaluates('[sorted(os.listdir()), open("src/a").read(), open("/agent/memory").read()]') == [
            ["src"],
            "kept",
            "kept",
        ]
        assert (await command(fleet, "s1", ["cat", "/workspace/src/a", "/agent/memory"])).stdout == "keptkept"
        assert (await live(fleet, b"src/a"), await live(fleet, b"memory", b"agent")) == (b"kept", b"kept")
        await inside.evaluates('[open("/workspace/new", "w").write("1"), os.rename("src/a", "/workspace/b")]')
        told = await scan(tree, base="first")
        files = {path: content for path, content in told.files().items() if path.startswith(b"workspace/")}
        assert files == {b"workspace/new": b"1", b"workspace/b": b"kept"}
        assert told.removed == {b"workspace/src/a"}
        assert (home.kept / ".aside-1" / "workspace" / "stray").read_text() == "lost"


async def test_what_programs_write_is_noticed_also_through_a_mapping(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        tree = fleet.sandbox("s1").tree()
        await fleet.start(spec(agent=python(AGENT)))
        watcher, inside = Owner(), await begin(fleet)
        await inside.evaluates('open("/workspace/mapped", "wb").write(bytes(8192))')
        await scan(tree, remember="first")

        async def settled() -> bool:
            """It is old enough for its times to be believed."""
            await scan(tree, base="first")
            return (await tree.survey(())).changed == 0

        await until(settled)
        await inside.evaluates('globals().update(m=mmap.mmap(os.open("/workspace/mapped", os.O_RDWR), 0))')
        assert (await tree.survey(())).changed == 1, "it is mapped: its times say nothing any more"
        for text in ("one", "two"):  # the second changes no time of the file
            await inside.evaluates(f"m.__setitem__(slice(3), {text.encode()!r})")
            assert (await scan(tree, base="first")).files()[b"workspace/mapped"].startswith(text.encode())
        await inside.evaluates("m.close()")
        await attach(fleet, watcher)
        changes = watcher.changes
        assert (await command(fleet, "s1", ["sh", "-c", "mkdir /workspace/d && echo > /workspace/d/f"])).exit_code == 0
        await until(lambda: watcher.changes > changes)


async def test_nobody_waits_for_the_removal_of_what_a_restore_has_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        sandbox, home = fleet.sandbox("s1"), SandboxHome(tmp_path, "s1")
        await fleet.start(spec(hold=True))
        await restored(sandbox.tree(), home, aside=False)
        await sandbox.stop()
        assert list((home.kept / TRASH).iterdir()), "its bridge had to end"
        fleet._host.trash.close()  # so that what is there stays
        await fleet.start(spec(hold=True))
        assert sorted(path.name for path in home.kept.iterdir()) == ["agent", "workspace"]
        assert [path.name for path in (tmp_path / "trash").rglob("stray")] == ["stray"]


async def test_a_swap_that_was_cut_short_is_finished_before_the_roots_are_mounted(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        home = SandboxHome(tmp_path, "s1")
        await fleet.start(spec())
        await fleet.sandbox("s1").stop()
        staging = home.kept / staging_name("half done")
        for root in ROOTS:
            (staging / "new" / root).mkdir(parents=True)
            (staging / "new" / root / "restored").touch()
            (staging / "new" / root).chmod(0o1700)
        (home.kept / ".swap").write_text(json.dumps({"staging": staging.name, "aside": True}))
        await fleet.start(spec())
        assert (await command(fleet, "s1", ["ls", "/workspace", "/agent"])).stdout.count("restored") == 2
        assert sorted(path.name for path in home.kept.iterdir()) == ["agent", "workspace"]


async def test_thousands_of_names_beside_the_roots_are_not_the_gateway_s_to_read(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained", start_timeout=60) as fleet:
        home = SandboxHome(tmp_path, "s1")
        await fleet.start(spec())
        shell = f"cd /session; seq -f .aside-%.0f {MOST_NAMES} | xargs mkdir; mv workspace .staging-x; echo > workspace"
        assert (await command(fleet, "s1", ["sh", "-c", shell])).exit_code == 0
        assert not is_plain(home.kept)
        await fleet.start(spec())
        assert (await command(fleet, "s1", ["sh", "-c", "pwd -P; ls"])).stdout == "/workspace\n"
        assert (home.kept / ".aside-workspace-1").is_file()


async def test_roots_that_cannot_be_made_fail_the_start_and_say_why(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained", start_timeout=0.001) as fleet:
        kept = SandboxHome(tmp_path, "s1").kept
        kept.mkdir(parents=True)
        (kept / ".swap").touch()
        with pytest.raises(SandboxFailed, match="its directories could not be made: not done after"):
            await fleet.start(spec())
        assert await fleet.running() == []
