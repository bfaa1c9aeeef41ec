"""The page is built when it must be and never twice, a gateway starts without one, and a wheel contains it."""

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from gateway.http.site.static_page import read_page
from tests.support.node import NODE
from tests.support.page import FILES, make_page

ROOT = Path(__file__).parents[1]
# It sleeps so that what it saves has another time: file systems tell them apart by milliseconds.
PYTHON = """#!/bin/sh
echo "$*" >> calls
case "$*" in
  *" ci "*) mkdir -p web/node_modules ;;
  *" run build "*)
    if test -e saved-meanwhile; then sleep 0.1; echo more >> web/console/src/main.tsx; rm saved-meanwhile; fi
    test ! -e broken && mkdir -p gateway/page && echo built > gateway/page/index.html ;;
esac
"""


class Checkout:
    """The Makefile over a made-up tree, with programs that only note how they are called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        shutil.copy(ROOT / "Makefile", root)
        for name in ("requirements-build.txt", "requirements-dev.txt", "pyproject.toml", "deploy/system-packages.sh"):
            self.write(name)
        self.write("web/package.json", "web/package-lock.json", "web/console/index.html", "web/console/vite.config.ts")
        self.write("web/console/src/main.tsx", "web/console/src/parts/chat.tsx", "web/client/src/index.ts")
        self.write("web/client/test/index.test.ts", "web/client/README.md")
        self.write("web/console/public/favicon.svg", "web/console/package.json", "web/tsconfig.base.json")
        self.program("python", PYTHON)
        self.program("holdfast", '#!/bin/sh\necho "holdfast $*"\n')
        self.write(".venv/.ready", ".venv/.ready-for-tests")
        self.settle()

    def write(self, *names: str) -> None:
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} of {time.time_ns()}")

    def program(self, name: str, text: str) -> None:
        self.write(f".venv/bin/{name}")
        path = self.root / ".venv" / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def settle(self) -> None:
        """Whatever there is was made a while ago: what was built or installed, after what it was made from."""
        long_ago, then = time.time() - 200, time.time() - 100
        for path in sorted(self.root.rglob("*"), reverse=True):
            made = path.name.startswith(".ready") or "gateway" in path.parts
            os.utime(path, (then, then) if made else (long_ago, long_ago))

    def make(self, *targets: str, well: bool = True) -> str:
        """What is said. The programs that were called are in `calls`."""
        (self.root / "calls").write_text("")
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        done = subprocess.run(
            ["make", *targets], cwd=self.root, env=clean, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert (done.returncode == 0) == well, done.stdout
        return done.stdout

    @property
    def calls(self) -> list[str]:
        """`ci` and `build`, as often as they were called."""
        called = (self.root / "calls").read_text().splitlines()
        return [word for line in called for word in line.split() if word in ("ci", "build")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


@pytest.fixture
def built(checkout: Checkout) -> Checkout:
    checkout.make("page")
    assert checkout.calls == ["ci", "build"]
    checkout.settle()
    return checkout


def test_a_page_is_not_built_twice(built: Checkout) -> None:
    for target in ("page", "run"):
        built.make(target)
        assert built.calls == []


@pytest.mark.parametrize(
    "name",
    [
        "web/console/src/main.tsx", "web/console/src/parts/chat.tsx", "web/console/src/parts/new.tsx",
        "web/client/src/index.ts", "web/console/public/favicon.svg", "web/console/index.html",
        "web/console/vite.config.ts", "web/console/package.json", "web/package.json", "web/tsconfig.base.json",
    ],
)  # fmt: skip
def test_what_the_page_is_made_of_has_it_built_again_and_nothing_installed(built: Checkout, name: str) -> None:
    built.write(name)
    built.make("page")
    assert built.calls == ["build"]


def test_a_source_that_is_gone_has_it_built_again(built: Checkout) -> None:
    (built.root / "web/console/src/parts/chat.tsx").unlink()
    built.make("page")
    assert built.calls == ["build"]


def test_only_another_lock_has_packages_installed(built: Checkout) -> None:
    built.write("web/package-lock.json")
    built.make("page")
    assert built.calls == ["ci", "build"]


def test_what_is_saved_while_the_page_is_built_has_it_built_again(built: Checkout) -> None:
    built.write("web/console/src/main.tsx", "saved-meanwhile")
    built.make("page")
    built.make("page")
    assert built.calls == ["build"]
    built.make("page")
    assert built.calls == []


def test_what_is_not_in_the_page_changes_nothing(built: Checkout) -> None:
    built.write("web/client/test/index.test.ts", "web/client/README.md", "web/node_modules/x/index.js")
    built.make("page")
    assert built.calls == []


def test_a_gateway_starts_without_a_page_that_cannot_be_built(checkout: Checkout) -> None:
    checkout.write("broken")
    said = checkout.make("run")
    assert "To try again: make page" in said
    assert said.rstrip().endswith("holdfast serve")
    checkout.make("page", well=False)
    (checkout.root / "broken").unlink()
    assert "could not" not in checkout.make("run")
    assert checkout.calls == ["build"], "what was installed stays"


def test_without_the_sources_of_a_page_the_gateway_starts_all_the_same(checkout: Checkout) -> None:
    shutil.rmtree(checkout.root / "web")
    assert "no web/package.json" in checkout.make("page")
    assert checkout.make("run").rstrip().endswith("holdfast serve")
    assert checkout.calls == []


def test_clean_removes_what_was_built(built: Checkout) -> None:
    built.make("clean")
    assert not (built.root / "gateway/page").exists()
    assert not (built.root / "web/node_modules").exists()
    assert (built.root / "web/console/src/main.tsx").exists()


def test_npm_finds_itself_and_node_on_a_machine_that_has_neither(tmp_path: Path) -> None:
    scripts = '{"scripts": {"outer": "npm run --silent inner", "inner": "node -p process.execPath"}}'
    (tmp_path / "package.json").write_text(scripts)
    (tmp_path / "bin").mkdir()
    for name in ("sh", "env"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    command = [sys.executable, "-m", "tests.support.node", "npm", "run", "--silent", "outer", "--prefix", str(tmp_path)]
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == [str(NODE)], done.stdout + done.stderr


PINNED = re.compile(r"^([a-z0-9-]+)==\S+( ; [^\\]+)? \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", re.MULTILINE)
FETCHING = re.compile(r"\bpip install\b|\$\(PIP\)")


@pytest.mark.parametrize(
    "name", ["requirements-run.txt", "requirements-build.txt", "requirements-page.txt", "requirements-dev.txt"]
)
def test_every_package_is_pinned_by_hash_and_no_registry_is_named(name: str) -> None:
    text = re.sub(r"(?m)^ *#.*\n", "", (ROOT / name).read_text())
    assert PINNED.sub("", text) == ""
    assert "://" not in (ROOT / name).read_text()


def test_what_installs_and_builds_is_pinned() -> None:
    pinned = set(re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / "requirements-build.txt").read_text()))
    assert {"uv", "hatchling", "editables"} <= pinned


@pytest.mark.parametrize("name", ["Makefile", "deploy/Dockerfile"])
def test_nothing_is_installed_but_by_hash_or_from_here(name: str) -> None:
    """`uv` itself was installed unpinned, and then installed all the rest."""
    commands = re.split(r"\n|&&", re.sub(r"\\\n", " ", (ROOT / name).read_text()))
    fetching = [each for each in commands if FETCHING.search(each) and ":=" not in each]
    assert fetching
    for command in fetching:
        local = "--no-deps" in command and ("--no-build-isolation" in command or "--no-index" in command)
        assert local or "--require-hashes -r requirements" in command, command


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy of this tree, which git ignores as it does here, with a made-up page."""
    home = tmp_path_factory.mktemp("wheel")
    tree = home / "tree"
    tree.mkdir()
    for name in (".gitignore", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for package in ("gateway", "persistence", "sync", "sandbox"):
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("page", "__pycache__"))
    make_page(tree / "gateway" / "page")
    (tree / "gateway" / "__pycache__").mkdir()
    (tree / "gateway" / "__pycache__" / "x.pyc").write_text("not to be shipped")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home / "dist")]
    done = subprocess.run(build, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (home / "dist").glob("*.whl")
    return made


def test_a_wheel_has_every_module_and_the_page(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path)
    assert {f"gateway/page/{name}" for name in FILES} <= names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "gateway").rglob("*.py")}
    assert modules <= names
    assert not [name for name in names if name.endswith(".pyc")]
    page = read_page(tmp_path / "gateway" / "page")
    assert page is not None
    assert page.index == FILES["index.html"]


def test_an_installed_wheel_finds_its_page(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = "from gateway.http.site.static_page import BUILT, read_page; print(BUILT, read_page(BUILT) is not None)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-P", "-c", script], cwd=tmp_path, env=environment, capture_output=True)
    assert done.stdout.decode() == f"{tmp_path}/gateway/page True\n", done.stderr.decode()
