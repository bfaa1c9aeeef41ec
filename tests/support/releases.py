"""Earlier releases that can be run: one archive for each in tests/releases/, with the packages a gateway needs.

`make archive COMMIT=...` adds one (`python -m tests.support.releases COMMIT`). The tests need neither git nor the
network for it. A release runs in this tree's environment, with this tree's dependencies.
"""

import lzma
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.support.gateway import REPOSITORY

PACKAGES = ("gateway", "persistence", "sandbox", "sync")
RELEASES = REPOSITORY / "tests/releases"
MOST_BYTES = 700 << 10  # the cost for each clone


def archives() -> Mapping[str, Path]:
    """By name: version and commit."""
    return {path.name.removesuffix(".tar.xz"): path for path in sorted(RELEASES.glob("*.tar.xz"))}


def unpack(archive: Path, into: Path) -> Path:
    """Put the release's packages into a new directory, to run `python -m gateway` there."""
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    return into


def install_this_tree(over: Path) -> None:
    """Replace a release's packages there by this tree's, as an upgrade in place does."""
    for name in PACKAGES:
        shutil.rmtree(over / name)
        (over / name).symlink_to(REPOSITORY / name)


def add(commit: str, releases: Path = RELEASES) -> Path:
    """Write the archive of a commit; the same commit gives the same bytes."""
    short = _git("rev-parse", "--short=7", "--verify", f"{commit}^{{commit}}").decode().strip()
    version = tomllib.loads(_git("show", f"{short}:pyproject.toml").decode())["project"]["version"]
    packed = lzma.compress(_git("archive", "--format=tar", short, *PACKAGES), preset=9)
    if len(packed) > MOST_BYTES:
        raise SystemExit(f"the archive has {len(packed)} bytes, more than {MOST_BYTES}: look at what is in it")
    path = releases / f"{version}-{short}.tar.xz"
    path.write_bytes(packed)
    return path


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode(errors="replace").strip() or f"git {words[0]} failed")
    return done.stdout


if __name__ == "__main__":
    added = add(sys.argv[1])
    sys.stdout.write(f"{added.relative_to(REPOSITORY)}: {added.stat().st_size} bytes\n")
