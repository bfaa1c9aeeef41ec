"""git, pip and npm in a contained sandbox, with real servers in another network: what is allowed works, over TLS; what
is not fails at once, with a sentence that names the setting."""

import base64
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.elsewhere import elsewhere, needs_namespaces
from tests.support.gateway import Gateway
from tests.support.inside import Inside, inside

WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")


def repository(at: Path) -> None:
    work = at / "work"
    for words in (
        ["init", "-q", str(work)],
        ["-C", str(work), "commit", "-q", "--allow-empty", "-m", "from elsewhere"],
    ):
        subprocess.run([*GIT, *words], check=True)
    subprocess.run([*GIT, "clone", "-q", "--bare", str(work), str(at / "r.git")], check=True)
    subprocess.run([*GIT, "-C", str(at / "r.git"), "update-server-info"], check=True)


def index(at: Path) -> None:
    """As pip reads it."""
    wheel = at / "simple" / "elsewhere" / "elsewhere-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("elsewhere.py", "print('pip was elsewhere')\n")
        archive.writestr("elsewhere-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
        archive.writestr("elsewhere-1.0.dist-info/WHEEL", WHEEL)
        archive.writestr("elsewhere-1.0.dist-info/RECORD", "")
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')


def registry(at: Path, address: str) -> None:
    """As npm reads it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (
            ("package/package.json", json.dumps({"name": "elsewhere-js", "version": "1.0.0", "main": "index.js"})),
            ("package/index.js", "console.log('npm was elsewhere')\n"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    tarball = packed.getvalue()
    (at / "elsewhere-js-1.0.0.tgz").write_bytes(tarball)
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    dist = {"tarball": f"https://{address}/elsewhere-js-1.0.0.tgz", "integrity": integrity}
    version = {"name": "elsewhere-js", "version": "1.0.0", "dist": dist}
    versions = {"name": "elsewhere-js", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (at / "elsewhere-js").write_text(json.dumps(versions))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Its address, and its certificate."""
    needs_namespaces()
    if any(shutil.which(tool) is None for tool in ("git", "npm", "node")):
        pytest.skip("git and npm are needed")
    place = tmp_path_factory.mktemp("elsewhere")
    files = place / "files"
    files.mkdir()
    repository(files)
    index(files)
    with elsewhere(place, files) as (address, pem):
        registry(files, address)
        yield address, pem.read_text()


@pytest.fixture
async def within(tmp_path: Path, host: tuple[str, str]) -> AsyncIterator[Inside]:
    """`ann` may reach the host, and `bob` another one."""
    address, pem = host
    subnet = address.rpartition(".")[0] + ".0/24"
    settings = {"LOCAL_LEVEL": "contained", "NETWORK_INNER": subnet}
    async with Gateway(tmp_path / "data", **settings) as gateway, inside(gateway.data_dir) as within:
        await gateway.create("ann", network={"allow": [address]})
        await gateway.create("bob", network={"allow": ["allowed.example"]})
        for session in ("ann", "bob"):
            await within.run(session, "python3", "-c", f"open('/workspace/ca.pem', 'w').write({pem!r})")
        yield within


PIP = f"{sys.executable} -m pip install --disable-pip-version-check --retries 0 --cert /workspace/ca.pem"
NPM = "npm install --no-audit --no-fund --fetch-retries=0 --cafile=/workspace/ca.pem"
# What to type, and what comes of it.
TOOLS = {
    "git": ["git -c http.sslCAInfo=/workspace/ca.pem clone -q https://{host}/r.git && git -C r log", "from elsewhere"],
    "pip": [PIP + " --index-url https://{host}/simple/ --target there elsewhere; cat there/elsewhere.py", "pip was"],
    "npm": [NPM + " --registry=https://{host}/ elsewhere-js; cat node_modules/elsewhere-js/index.js", "npm was"],
    "curl": ["curl -sS --cacert /workspace/ca.pem https://{host}/elsewhere-js", "dist-tags"],
}


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_tool_works_where_it_is_allowed_and_fails_at_once_where_it_is_not(
    within: Inside, host: tuple[str, str], tool: str
) -> None:
    address, _ = host
    script, wanted = TOOLS[tool]
    script = f"cd /workspace && {script.format(host=address)}"
    allowed = await within.shell("ann", script)
    assert wanted in allowed, allowed
    denied = await within.run("bob", "sh", "-c", f"({script}) 2>&1", seconds=50)
    assert not denied.timed_out, denied
    assert wanted not in denied.stdout
    assert "403" in denied.stdout or tool == "pip", denied.stdout  # which says why at -vv alone
    words = await within.shell("bob", f"curl -sS http://{address}/")
    assert f'"{address}" in the allow of its network (HOLDFAST_NETWORK) allows it' in words


async def test_past_the_proxy_there_is_nothing(within: Inside, host: tuple[str, str]) -> None:
    address, _ = host
    said = await within.shell(
        "ann", f"curl -sS -m 10 --noproxy '*' https://{address}/; getent hosts example.com; echo end"
    )
    assert "curl: (7)" in said
    assert said.endswith("end\n")
