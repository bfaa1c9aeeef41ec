"""What programs in a contained sandbox find at `/workspace` and `/agent`: real directories, also after a restore."""

import json
import shutil
from pathlib import Path
from typing import Any

from sandbox.ports.link import Link
from sandbox.ports.tree import LiveFile, SandboxTree
from sandbox.providers.local.fleet import LocalFleet
from sandbox.providers.local.layout import SandboxHome
from sandbox.tree.root_swap import TRASH
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


async def restored(tree: SandboxTree, home: SandboxHome) -> None:
    """Put a kept tree in the place of one that programs have seen."""
    (home.workspace / "src").mkdir()
    (home.workspace / "src" / "a").write_text("kept")
    (home.agent / "memory").write_text("kept")
    kept = await scan(tree, remember="first")
    for root in (home.workspace, home.agent):
        shutil.rmtree(root / "src", ignore_errors=True)
    (home.agent / "memory").unlink()
    (home.workspace / "stray").write_text("lost")
    await restore(tree, kept, "first", aside=True)


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
        await inside.evaluates('globals().update(m=mmap.mmap(os.open("/workspace/mapped", os.O_RDWR), 0))')
        await scan(tree, remember="first")
        for text in ("one", "two"):  # the second changes no time of the file
            await inside.evaluates(f"m.__setitem__(slice(3), {text.encode()!r})")
            assert (await tree.survey(())).changed == 1
            assert (await scan(tree, base="first")).files()[b"workspace/mapped"].startswith(text.encode())
        await inside.evaluates("m.close()")
        await attach(fleet, watcher)
        changes = watcher.changes
        assert (await command(fleet, "s1", ["sh", "-c", "mkdir /workspace/d && echo > /workspace/d/f"])).exit_code == 0
        await until(lambda: watcher.changes > changes)


async def test_nobody_waits_for_the_removal_of_what_a_restore_has_replaced(tmp_path: Path) -> None:
    async with opened(tmp_path, "contained") as fleet:
        await fleet.start(spec())
        await fleet.sandbox("s1").stop()
        kept = SandboxHome(tmp_path, "s1").kept
        (kept / TRASH / "old" / "deep").mkdir(parents=True)
        await fleet.start(spec())
        assert sorted(path.name for path in kept.iterdir()) == ["agent", "workspace"]
        await until(lambda: not list((tmp_path / "trash").iterdir()))
