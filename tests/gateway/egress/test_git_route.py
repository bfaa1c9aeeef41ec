"""A session's repository by way of the proxy: real git, a real host over TLS, and a token that no sandbox has."""

import subprocess
from pathlib import Path

from gateway.egress.model_settings import ProviderKey
from gateway.egress.providers import read_providers
from tests.gateway.egress.git_host import GitHost, git_host, run_git
from tests.gateway.egress.origins import KeptKeys, ModelOrigin, Models
from tests.gateway.egress.proxies import Proxied, proxied, say

PLACE = ("user of ann", "github")


def session(proxy: Proxied, host: GitHost, keys: KeptKeys, repository: str = "o/r") -> tuple[int, tuple[str, str]]:
    """Its port, and what leads its git there."""
    models = Models(proxy, ModelOrigin(), keys)
    models.gateway.providers = read_providers(host.providers_file())
    url = f"{host.origin}/{repository}"
    routes = models.gateway.routes("ann", "user of ann", repo_url=url)
    port = proxy.session("ann", "none", routes=routes)
    return port, (f"http://127.0.0.1:{port}/git/{url.removeprefix('https://')}", url)


async def test_clone_fetch_and_push_go_through(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, git_host(tmp_path) as host:
        host.keys.add("canary-token")
        _, lead = session(proxy, host, KeptKeys({PLACE: ProviderKey("canary-token")}))
        code, said = await run_git(tmp_path, "clone", f"{host.origin}/o/r.git", "mine", lead=lead)
        assert code == 0, said
        mine = tmp_path / "mine"
        (mine / "big").write_bytes(bytes(range(256)) * 8000)
        for argv in (["add", "."], ["commit", "-q", "-m", "second"], ["push", "-q", "origin", "main"], ["fetch"]):
            code, said = await run_git(mine, *argv, lead=lead)
            assert code == 0, said
        shown = subprocess.run(["git", "-C", str(host.root / "o/r.git"), "log", "--oneline"], capture_output=True)
        assert b"second" in shown.stdout
        assert {key for _, key in host.seen} == {"canary-token"}
        assert not [path for path in mine.rglob("*") if path.is_file() and b"canary-token" in path.read_bytes()]


async def test_no_other_repository_is_reached(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, git_host(tmp_path) as host:
        host.keys.add("t")
        port, lead = session(proxy, host, KeptKeys({PLACE: ProviderKey("t")}))
        wide = (lead[0].removesuffix("/o/r"), host.origin)
        code, said = await run_git(tmp_path, "clone", f"{host.origin}/o/other", lead=wide)
        assert code != 0
        assert "it is this session's repoUrl" in said
        place = "/git" + lead[0].partition("/git")[2].removesuffix("/o/r")
        others = ("/o/r/info/lfs/objects/batch", "/o/r/info/refs", "/o/other/info/refs?service=git-upload-pack")
        for path in (*others, "/o/r/../other/info/refs?service=git-upload-pack"):
            said_back = await say(port, f"GET {place}{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert said_back.startswith(b"HTTP/1.1 403 ")
        assert host.seen == []


async def test_a_repository_that_wants_a_credential_says_how_to_give_one(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, git_host(tmp_path) as host:
        _, lead = session(proxy, host, KeptKeys())
        code, said = await run_git(tmp_path, "clone", f"{host.origin}/o/r", lead=lead)
        assert code != 0
        assert "`holdfast credentials set github`" in said


async def test_a_refused_token_is_renewed_once(tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, git_host(tmp_path) as host:
        host.keys.add("new")
        keys = KeptKeys({PLACE: ProviderKey("old")}, {PLACE: ProviderKey("new")})
        _, lead = session(proxy, host, keys)
        code, said = await run_git(tmp_path, "ls-remote", f"{host.origin}/o/r", lead=lead)
        assert code == 0, said
        assert [key for _, key in host.seen] == ["old", "new"]
