"""A repository in a container's workspace, cloned outside it. What may be cloned is in the tests of local sandboxes."""

import dataclasses
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports.fleet import SandboxSpec
from sandbox.ports.sandbox import Command, SandboxFailed
from sandbox.providers.container.kits import Kits
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import MARKER, find
from tests.contract.sandbox import spec
from tests.sandbox.containers import UID, fleet_on, opened
from tests.support.engine import DockerEngine
from tests.support.repositories import served


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with served(tmp_path_factory.mktemp("git")) as found:
        yield found


def settings(certificates: Path) -> dict[str, Any]:
    return {
        "allow_private_repos": True,
        "base_env": {"GIT_SSL_CAINFO": str(certificates / "server.pem")},
        "readable": {certificates: "/certificates"},
    }


def wish(address: str, path: str = "/r.git", branch: str | None = "feature/x") -> SandboxSpec:
    return dataclasses.replace(spec(), agent=("cat",), repo_url=address + path, repo_branch=branch)


async def test_a_repository_is_cloned_into_an_empty_workspace_and_belongs_to_the_user_inside(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits, repositories: tuple[str, Path]
) -> None:
    address, certificates = repositories
    home = SandboxHome(tmp_path, "s1")
    home.make()
    (home.root / "clone" / "repository").mkdir(parents=True)
    (home.root / "clone" / "repository" / "half").touch()
    still_at_it = subprocess.Popen(["sleep", "600"], env={MARKER: home.marker})  # of a gateway that was killed
    try:
        async with opened(docker_engine, tmp_path, kits, **settings(certificates)) as fleet:
            await fleet.start(wish(address))
            assert find(still_at_it.pid) is None
            assert sorted(path.name for path in home.workspace.iterdir()) == [".git", "hello.txt"]
            assert {path.lstat().st_uid for path in (home.workspace, *home.workspace.rglob("*"))} == {UID}
            assert not (home.workspace / ".git/hooks").exists(), "no templates, so no hooks"
            script = "cat hello.txt && echo changed > hello.txt && touch .git/index /workspace/new"
            done = await fleet.sandbox("s1").exec(Command(("sh", "-c", script), timeout_seconds=60))
            assert (done.exit_code, done.stdout) == (0, "hello from the branch\n"), done.stderr
            await fleet.start(dataclasses.replace(wish(address), incarnation=2))
            assert (home.workspace / "hello.txt").read_text() == "changed\n"
            assert sorted(path.name for path in home.kept.iterdir()) == ["agent", "workspace"]
            assert sorted(path.name for path in home.root.iterdir()) == ["bridge.json", "bridge.log", "kept", "state"]
    finally:
        still_at_it.kill()
        still_at_it.wait()


@pytest.mark.parametrize(
    ("path", "branch", "seconds", "reason"),
    [
        ("/missing.git", None, 300, "git clone failed: .*not found"),
        ("/r.git", "no-such-branch", 300, "git clone failed: .*no-such-branch"),
        ("/moved/r.git", None, 300, "git clone failed: .*302"),
        ("/r.git", None, 0.001, "git clone failed: not done after 0.001 s"),
    ],
)
async def test_a_clone_that_fails_says_why_and_leaves_no_half_workspace(
    path: str,
    branch: str | None,
    seconds: float,
    reason: str,
    docker_engine: DockerEngine,
    tmp_path: Path,
    kits: Kits,
    repositories: tuple[str, Path],
) -> None:
    address, certificates = repositories
    async with opened(docker_engine, tmp_path, kits, clone_timeout=seconds, **settings(certificates)) as fleet:
        with pytest.raises(SandboxFailed, match=f"(?i){reason}"):
            await fleet.start(wish(address, path, branch))
        home = SandboxHome(tmp_path, "s1")
        assert os.listdir(home.workspace) == []
        assert home.workspace.stat().st_uid == UID
        assert not (home.root / "clone").exists()
        assert await fleet.containers.all(stopped=True) == []


async def test_what_may_not_be_cloned_is_refused_with_its_reason(
    docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    async with opened(docker_engine, tmp_path, kits) as fleet:
        for url, branch, reason in (
            ("https://localhost/r", None, "private network"),
            ("ext::sh -c id", None, "https://"),
            ("https://example.com/r", "-x", "repoBranch"),
        ):
            with pytest.raises(SandboxFailed, match=reason):
                fleet.check(spec(repo_url=url, repo_branch=branch))
        with pytest.raises(SandboxFailed, match="host was not found"):
            await fleet.start(spec(repo_url="https://no-such-host.invalid/r"))
        assert await fleet.containers.all(stopped=True) == []


@pytest.mark.parametrize(("bwrap", "why"), [("/bin/false", "exit code 1"), ("/nonexistent/bwrap", "No such file")])
async def test_where_nothing_can_be_contained_a_clone_is_refused_and_all_else_goes_on(
    bwrap: str, why: str, docker_engine: DockerEngine, tmp_path: Path, kits: Kits
) -> None:
    fleet = fleet_on(docker_engine, tmp_path, kits, bwrap=bwrap)
    await fleet.open()
    fleet.check(spec())
    with pytest.raises(SandboxFailed, match=rf"repoUrl: .*bubblewrap .*: {bwrap}.*{why}.*\. Install bubblewrap"):
        fleet.check(spec(repo_url="https://example.com/r"))
    await fleet.close()
