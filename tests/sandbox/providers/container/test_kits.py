"""The kit: whole or not there, made once, good for every image."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import sandbox
from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.container import kit_maker, kits
from sandbox.providers.container.kit_maker import MANIFEST, is_whole, start_line
from sandbox.providers.container.kits import Kits
from tests.support.engine import DockerEngine, root_of

PARTS = ("agents", "bridge", "protocol", "system", "terminal", "tree")
EVERYTHING = """
import sys
sys.path.append(sys.argv[1] + "/packages")
import importlib
for name in sys.argv[2:]:
    importlib.import_module(name)
import uvloop, ssl, ctypes, json
files = [module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
assert all(file.startswith(sys.argv[1]) for file in files)
print("all of", len(sys.argv) - 2)
"""


@pytest.fixture
def kit(kits_directory: Path) -> Path:
    return kit_maker.make(kits_directory)


def modules() -> list[str]:
    root = Path(sandbox.__file__ or "").parent
    found = [root / "demo_agent.py", *(path for part in PARTS for path in (root / part).rglob("*.py"))]
    return [".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__") for path in found]


def test_the_kit_has_all_that_a_bridge_can_import(kit: Path) -> None:
    argv = [*start_line(str(kit)), "-I", "-S", "-c", EVERYTHING, str(kit), *modules()]
    # What an image may set for its own Python.
    hostile = {"PYTHONHOME": "/nonsense", "PYTHONPATH": "/nonsense", "PYTHONSTARTUP": "/nonsense"}
    done = subprocess.run(argv, env=hostile, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"all of {len(modules())}\n", "")


def glibc() -> bytes:
    """The root of an image with the C library of this machine, its shell, and no Python."""
    shell = Path("/bin/sh").resolve()
    told = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout
    needed = [word for word in told.split() if word.startswith("/")]
    return root_of({"bin/sh": shell.read_bytes()} | {path[1:]: Path(path).read_bytes() for path in needed})


def test_it_runs_in_an_image_with_a_libc_and_in_one_without(kit: Path, docker_engine: DockerEngine) -> None:
    docker_engine.load("holdfast-test/glibc:1", glibc())
    run = ["run", "--rm", "--network", "none", "--read-only", "--user", "1234", "--volume", f"{kit}:/kit:ro"]
    look = "import sys; sys.path.append('/kit/packages'); import sandbox.bridge.__main__, uvloop; print('it runs')"
    for image in (docker_engine.image, "holdfast-test/glibc:1"):
        assert docker_engine.client(*run, image, "sh", "-c", "exit 0") == ""
        told = docker_engine.client(*run, image, *start_line("/kit"), "-I", "-S", "-c", look)
        assert told == "it runs\n"


async def test_it_is_for_everybody_to_read_whatever_the_umask(kit: Path) -> None:
    modes = {path.stat().st_mode & 0o777 for path in kit.rglob("*")}
    assert modes == {0o755, 0o644}
    assert kit.stat().st_mode & 0o777 == 0o755


async def test_it_is_made_once_and_found_by_the_next(kit: Path, kits_directory: Path) -> None:
    before = {path.name: path.stat().st_ino for path in kits_directory.iterdir()}
    found = await asyncio.gather(*(Kits(kits_directory).current() for _ in range(2)))
    assert found == [kit, kit]
    assert {path.name: path.stat().st_ino for path in kits_directory.iterdir()} == before


async def test_makers_at_once_make_one_and_what_a_killed_one_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(monkeypatch)
    (tmp_path / ".new-half").mkdir()
    (tmp_path / ".new-half" / "python").touch()
    one, other = await asyncio.gather(*(asyncio.to_thread(kit_maker.make, tmp_path) for _ in range(2)))
    assert one == other
    assert is_whole(one)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == [one.name]


def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kits of one file: how they are made does not matter."""

    def fill(kit: Path) -> None:
        kit.mkdir()
        (kit / "python").write_text("a program")
        (kit / MANIFEST).write_text(kit_maker._digest(kit))

    monkeypatch.setattr(kit_maker, "_fill", fill)
    monkeypatch.setattr(kit_maker, "_try", lambda kit: None)


@pytest.mark.parametrize("harm", ["a byte", "a file less", "a file more", "a mode", "no manifest"])
def test_a_damaged_kit_is_made_again(harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(monkeypatch)
    kit = kit_maker.make(tmp_path)
    assert is_whole(kit)
    match harm:
        case "a byte":
            (kit / "python").write_text("b program")
        case "a file less":
            (kit / "python").unlink()
        case "a file more":
            (kit / "sitecustomize.py").touch()
        case "a mode":
            (kit / "python").chmod(0o666)
        case "no manifest":
            (kit / MANIFEST).unlink()
    assert not is_whole(kit)
    assert kit_maker.make(tmp_path) == kit
    assert is_whole(kit)
    assert (kit / "python").read_text() == "a program"


def test_another_version_makes_another_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = kit_maker.name()
    assert kit_maker.name() == name
    copy = tmp_path / "sandbox"
    shutil.copytree(Path(sandbox.__file__ or "").parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kit_maker, "package", lambda: copy)
    copied = kit_maker.name()
    (copy / "bridge" / "__pycache__").mkdir()
    (copy / "bridge" / "__pycache__" / "server.pyc").touch()
    assert kit_maker.name() == copied, "what Python keeps beside its sources is not part of it"
    os.utime(copy / "bridge" / "server.py", (1, 1))
    assert kit_maker.name() != copied


async def test_why_it_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxFailed, match=r"kit.*could not be made: .*Not a directory"):
        await Kits(tmp_path / "file" / "kit").current()
    monkeypatch.setattr(kits, "PYTHON", "/nonexistent/python")
    with pytest.raises(SandboxFailed, match=r"could not be made: No such file"):
        await Kits(tmp_path).current()
    monkeypatch.setattr(kit_maker, "PACKAGES", ("no_such_package",))
    with pytest.raises(kit_maker.KitFailed, match="no_such_package is not installed"):
        kit_maker.name()


async def test_kits_that_nobody_uses_are_named(kit: Path, tmp_path: Path, kits_directory: Path) -> None:
    kits = Kits(kits_directory)
    current = await kits.current()
    old, used = kits_directory / "old", kits_directory / "used"
    try:
        for path in (old, used):
            path.mkdir()
        assert kits.unused({"used"}) == [old]
        assert current == kit
    finally:
        old.rmdir()
        used.rmdir()
    assert Kits(tmp_path / "nothing").unused(()) == []
