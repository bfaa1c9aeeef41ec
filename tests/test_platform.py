"""A platform that knows Procfile and requirements.txt and nothing else of Holdfast gets the command and the page."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.gateway import Gateway, ServerProcess

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"(?m)^([a-z0-9-]+==\S+(?: ; [^\\\n]*[^\\\s])?)")


def without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_") and name != "PORT"}


@pytest.fixture(scope="module")
def slug(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What such a platform makes of a push: the files that git knows, and `pip install -r requirements.txt`."""
    slug = tmp_path_factory.mktemp("platform") / "app"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(listing, cwd=ROOT, text=True).split("\0")):
        if (ROOT / name).is_file():
            (slug / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, slug / name)
    subprocess.run([sys.executable, "-m", "venv", slug.parent / "python"], check=True)
    pip = [str(slug.parent / "python/bin/pip"), "install", "--quiet", "--no-compile", "-r", "requirements.txt"]
    done = subprocess.run(pip, cwd=slug, env=without_settings(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return slug


class Dyno(Gateway):
    """The process `web` of the Procfile, with PORT and what the operator has set."""

    def __init__(self, slug: Path, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.slug = slug

    def environment(self) -> dict[str, str]:
        mine = {"HOLDFAST_DATA_DIR": str(self.data_dir), "HOLDFAST_LOCAL_LEVEL": "trusted"}
        path = f"{self.slug.parent}/python/bin:/usr/bin:/bin"
        return {"PATH": path, "HOME": str(self.slug), "PORT": str(self.settings["PORT"]), **mine}

    async def _spawn(self) -> ServerProcess:
        processes = dict(line.split(":", 1) for line in (self.slug / "Procfile").read_text().splitlines())
        with self.log_path.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                "sh", "-c", f"exec {processes['web'].strip()}",
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
                env=self.environment(), cwd=self.slug, start_new_session=True,
            )  # fmt: skip


async def test_a_platform_gets_the_command_and_the_page(slug: Path, tmp_path: Path) -> None:
    """It had only the dependencies: no `holdfast`, and on a bare checkout no page. The router met a closed port."""
    async with Dyno(slug, tmp_path / "data") as dyno:
        # Not where a gateway on loopback listens: whoever comes from elsewhere meets it, too.
        router = httpx.URL(f"http://127.0.0.2:{dyno.settings['PORT']}")
        async with httpx.AsyncClient(base_url=router, trust_env=False) as client:
            page = await client.get("/")
            assert page.status_code == 200
            (script,) = re.findall(r'src="/?(assets/[^"]+\.js)"', page.text)
            assert (await client.get(f"/{script}")).status_code == 200
        await dyno.create("s1")
    assert not (slug / "web/node_modules").exists(), "what built the page is not carried along"


def test_the_command_is_there_for_a_shell_of_the_platform(slug: Path, tmp_path: Path) -> None:
    command = [str(slug.parent / "python/bin/holdfast"), "token", "--user", "ada", "--email", "ada@example.com"]
    done = subprocess.run(command, env={"HOLDFAST_DATA_DIR": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(".") == 2, "a token has three parts"


def test_the_versions_are_those_that_are_locked_by_hash() -> None:
    for_platforms = (ROOT / "requirements.txt").read_text()
    assert "\n.\n" in for_platforms, "Holdfast itself"
    assert PIN.findall(for_platforms) == PIN.findall((ROOT / "requirements-run.txt").read_text())
    assert "--hash" not in for_platforms, "with hashes pip refuses a directory"
