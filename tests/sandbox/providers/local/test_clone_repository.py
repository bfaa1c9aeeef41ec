"""Cloning what a user named: the corpus of what is refused, and real clones from a real HTTPS server."""

import ipaddress
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox.ports.sandbox import SandboxFailed
from sandbox.providers.local import clone
from sandbox.providers.local.clone import check_addresses, check_repo
from sandbox.providers.local.layout import SandboxHome
from sandbox.providers.local.processes import MARKER, find
from tests.sandbox.local import LEVELS, opened, spec
from tests.support.repositories import served

GOOD_URLS = [
    "https://github.com/someone/something",
    "https://github.com/someone/something.git",
    "https://git.example.org:8443/a/b-c_d~e/f.git",
    "https://8.8.8.8/r.git",
    "https://[2606:4700::1111]/r.git",
    "https://xn--bcher-kva.example/r",
    "https://example.com./r",
]
BAD_URLS = [
    "",
    "http://github.com/a/b",
    "git://github.com/a/b",
    "ssh://git@github.com/a/b",
    "git@github.com:a/b",
    "file:///etc/passwd",
    "/etc",
    "ext::sh -c id",
    "ExT::sh -c id",
    "HTTPS://github.com/a/b",
    "--upload-pack=x",
    "-u./x",
    "https://github.com",
    "https://github.com/",
    "https:///a/b",
    "https://h.example/a?x=$(id)",
    "https://h.example/a#b",
    "https://$(id)@h.example/a",
    "https://user:password@h.example/a",
    "https://github.com@169.254.169.254/a",
    "https://h.example\\@127.0.0.1/a",
    "https://h.example/a b",
    "https://h.example/a\nb",
    "https://h.example/a\r",
    "https://h.example/a\x00b",
    "https://h.example/\u202eabc",
    "https://h.ex\u3002ample/a",
    "https://\uff11\uff12\uff17.0.0.1/a",
    "https://h.example:99999/a",
    "https://h.example:port/a",
    "https://-h.example/a",
    "https://h..example/a",
    "https://%31%32%37.0.0.1/a",
    "https://localhost/a",
    "https://localhost./a",
    "https://LOCALHOST/a",
    "https://api.localhost/a",
    "https://router.local/a",
    "https://metadata.google.internal/a",
    "https://intranet/a",
    "https://127.0.0.1/a",
    "https://127.1/a",
    "https://2130706433/a",
    "https://0x7f000001/a",
    "https://0x7f.1/a",
    "https://0177.0.0.1/a",
    "https://127.0.0.01/a",
    "https://0/a",
    "https://0.0.0.0/a",
    "https://1.2.3.4.5/a",
    "https://999.1.1.1/a",
    "https://10.0.0.1/a",
    "https://172.16.5.5/a",
    "https://192.168.1.1/a",
    "https://100.64.0.1/a",
    "https://169.254.169.254/latest/meta-data",
    "https://168.63.129.16/a",
    "https://192.0.0.192/a",
    "https://192.0.0.9/a",
    "https://192.88.99.1/a",
    "https://[::ffff:168.63.129.16]/a",
    "https://[64:ff9b::c000:c0]/a",
    "https://[64:ff9b:1::7f00:1]/a",
    "https://[::7f00:1]/a",
    "https://[fec0::1]/a",
    "https://[feff::1]/a",
    "https://224.0.0.1/a",
    "https://255.255.255.255/a",
    "https://[::1]/a",
    "https://[::]/a",
    "https://[::ffff:127.0.0.1]/a",
    "https://[::ffff:7f00:1]/a",
    "https://[64:ff9b::7f00:1]/a",
    "https://[2002:7f00:1::]/a",
    "https://[fe80::1]/a",
    "https://[fe80::1%25eth0]/a",
    "https://[fd00::1]/a",
    "https://[ff02::1]/a",
    "https://[not-an-address]/a",
    "https://" + "a" * 2001,
]
GOOD_BRANCHES = ["main", "feature/a-b_c", "v1.2.3", "a@b", "ünïcode", "x" * 250]
BAD_BRANCHES = [
    "",
    "-",
    "-c core.x=y",
    "--upload-pack=x",
    "a b",
    "a..b",
    "a~1",
    "a^",
    "a:b",
    "a?",
    "a*",
    "a[b",
    "a\\b",
    "a\nb",
    "a\x00b",
    "a\x7f",
    "/a",
    "a/",
    "a//b",
    ".a",
    "a/.b",
    "a.",
    "a.lock",
    "a.lock/b",
    "@",
    "HEAD",
    "a@{1}",
    "a\u202eb",
    "x" * 251,
]


@pytest.mark.parametrize("url", GOOD_URLS)
def test_an_ordinary_address_is_accepted(url: str) -> None:
    check_repo(url)


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_tricky_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="repoUrl"):
        check_repo(url)


@pytest.mark.parametrize("branch", GOOD_BRANCHES)
def test_an_ordinary_branch_is_accepted(branch: str) -> None:
    check_repo(GOOD_URLS[0], branch)


@pytest.mark.parametrize("branch", BAD_BRANCHES)
def test_a_tricky_branch_is_refused(branch: str) -> None:
    with pytest.raises(ValueError, match="repoBranch"):
        check_repo(GOOD_URLS[0], branch)


@given(st.text(max_size=12))
def test_a_branch_that_is_accepted_is_one_to_git(branch: str) -> None:
    try:
        check_repo(GOOD_URLS[0], branch)
    except ValueError:
        return
    assert subprocess.run(["git", "check-ref-format", "--branch", branch], capture_output=True).returncode == 0


@given(st.integers(0, 2**32 - 1))
@example(int(ipaddress.IPv4Address("192.0.0.8")))
@example(int(ipaddress.IPv4Address("168.63.129.16")))
def test_an_address_is_public_in_every_spelling_or_in_none(number: int) -> None:
    four = ipaddress.IPv4Address(number)
    spellings = [f"https://{four}/a", f"https://[::ffff:{four}]/a"]
    refused = []
    for url in spellings:
        try:
            check_repo(url)
        except ValueError:
            refused.append(url)
    assert refused in ([], spellings)
    ours = any(four in ipaddress.ip_network(each) for each in ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24"))
    assert bool(refused) == (not four.is_global or four.is_multicast or four.is_reserved or ours)


def test_a_name_that_stands_for_a_private_address_is_refused() -> None:
    check_addresses("h.example", ["93.184.215.14", "2606:2800:21f:cb07::1"])
    for address in ("127.0.0.1", "10.1.2.3", "::1", "fe80::1%eth0", "169.254.169.254"):
        with pytest.raises(ValueError, match="private"):
            check_addresses("h.example", ["93.184.215.14", address])
    with pytest.raises(ValueError, match="private"):
        clone.resolve("https://localhost/a")


def test_the_command_leaves_nothing_to_interpretation() -> None:
    pin = clone.Pin("h.example", 443, ("93.184.215.14", "2606:2800:21f:cb07::1"))
    argv = clone.command("https://h.example/a", "-x", "/workspace/repository", pin)
    assert argv[-3:] == ["--", "https://h.example/a", "/workspace/repository"]
    assert "--branch=-x" in argv
    assert "http.curloptResolve=h.example:443:93.184.215.14,[2606:2800:21f:cb07::1]" in argv
    assert clone.environment({"A": "b"})["GIT_ALLOW_PROTOCOL"] == "https"


def test_the_reason_is_git_s_own_and_harmless_to_show() -> None:
    output = b"Cloning into 'x'...\nwarning: nothing\nfatal: repository 'x\x1b[2J' not found\n"
    assert clone.reason(output) == "fatal: repository 'x [2J' not found"
    assert clone.reason(b"") == ""


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with served(tmp_path_factory.mktemp("git")) as found:
        yield found


def settings(certificates: Path) -> dict[str, object]:
    return {
        "allow_private_repos": True,
        "base_env": {"GIT_SSL_CAINFO": str(certificates / "server.pem")},
        "readable": [certificates],
    }


@pytest.mark.parametrize("level", LEVELS)
async def test_a_repository_is_cloned_into_an_empty_workspace_and_only_there(
    level: str, tmp_path: Path, repositories: tuple[str, Path]
) -> None:
    address, certificates = repositories
    wish = spec(network="outbound", repo_url=f"{address}/r.git", repo_branch="feature/x")
    async with opened(tmp_path, level, **settings(certificates)) as fleet:
        await fleet.start(wish)
        workspace = tmp_path / "sandboxes/s1/kept/workspace"
        assert (workspace / "hello.txt").read_text() == "hello from the branch\n"
        assert not (workspace / ".git/hooks").exists(), "no templates, so no hooks"
        (workspace / "hello.txt").write_text("changed")
        await fleet.start(wish)
        assert (workspace / "hello.txt").read_text() == "changed"
        assert sorted(path.name for path in workspace.parent.iterdir()) == ["agent", "workspace"]
        inside = sorted(path.name for path in (tmp_path / "sandboxes/s1").iterdir())
        assert inside == ["bridge.json", "bridge.log", "kept", "state"]


@pytest.mark.parametrize(
    ("path", "branch", "reason"),
    [
        ("/missing.git", None, "not found"),
        ("/r.git", "no-such-branch", "no-such-branch"),
        ("/moved/r.git", None, "302"),
    ],
)
async def test_a_clone_that_fails_says_why_and_leaves_no_half_workspace(
    path: str, branch: str | None, reason: str, tmp_path: Path, repositories: tuple[str, Path]
) -> None:
    address, certificates = repositories
    async with opened(tmp_path, "contained", **settings(certificates)) as fleet:
        with pytest.raises(SandboxFailed, match=f"(?i)git clone failed: .*({reason})"):
            await fleet.start(spec(network="outbound", repo_url=address + path, repo_branch=branch))
        assert os.listdir(tmp_path / "sandboxes/s1/kept/workspace") == []
        assert not (tmp_path / "sandboxes/s1/clone").exists()
        assert await fleet.running() == []


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ({"network": "none", "repo_url": "https://example.com/r"}, "network: outbound"),
        ({"network": "outbound", "repo_url": "https://localhost/r"}, "private network"),
        ({"network": "outbound", "repo_url": "ext::sh -c id"}, "https://"),
        ({"network": "outbound", "repo_url": "https://example.com/r", "repo_branch": "-x"}, "repoBranch"),
        ({"network": "outbound", "repo_url": "https://no-such-host.invalid/r"}, "host was not found"),
    ],
)
async def test_a_wish_that_cannot_be_met_is_refused_with_its_reason(
    wish: dict[str, str], reason: str, tmp_path: Path
) -> None:
    async with opened(tmp_path, "trusted") as fleet:
        with pytest.raises(SandboxFailed, match=reason):
            await fleet.start(spec(**wish))
        assert await fleet.running() == []


async def test_what_a_killed_gateway_left_of_a_clone_is_cleared_away(
    tmp_path: Path, repositories: tuple[str, Path]
) -> None:
    address, certificates = repositories
    home = SandboxHome(tmp_path, "s1")
    home.make()
    (home.root / "clone" / "repository").mkdir(parents=True)
    (home.root / "clone" / "repository" / "half").touch()
    still_at_it = subprocess.Popen(["sleep", "600"], env={MARKER: home.marker})
    try:
        async with opened(tmp_path, "trusted", **settings(certificates)) as fleet:
            await fleet.start(spec(network="outbound", repo_url=f"{address}/r.git", repo_branch="feature/x"))
            assert sorted(path.name for path in home.workspace.iterdir()) == [".git", "hello.txt"]
            assert find(still_at_it.pid) is None
    finally:
        still_at_it.kill()
        still_at_it.wait()


async def test_a_clone_that_takes_too_long_is_ended(tmp_path: Path, repositories: tuple[str, Path]) -> None:
    address, certificates = repositories
    async with opened(tmp_path, "trusted", clone_timeout=0.001, **settings(certificates)) as fleet:
        with pytest.raises(SandboxFailed, match="not done after"):
            await fleet.start(spec(network="outbound", repo_url=f"{address}/r.git"))
        assert not (tmp_path / "sandboxes/s1/kept/workspace").exists()
