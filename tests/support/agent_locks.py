"""`python -m tests.support.agent_locks`: write the locks that ship for the versions of the catalogue, with npm. A
package that the registry lacks gets no lock: an installation then compares it with the registry's own hash."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gateway.agents.catalogue import AGENTS, Package
from gateway.agents.install.package_files import lock_name, manifest

LOCKS = Path(__file__).parents[2] / "gateway/agents/install/locks"
HOW = ("--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved")
PLATFORMS = ("linux-x64", "linux-arm64", "linux-x64-musl", "linux-arm64-musl")


def packages() -> Iterator[tuple[Package, str, str]]:
    """Each package of each version, and a platform that it is for."""
    for agent in AGENTS:
        found = {package.name: (package, each) for each in PLATFORMS if (package := agent.package(each)) is not None}
        for package, platform in found.values():
            for version in agent.versions:
                yield package, version, platform


def write(package: Package, version: str, platform: str) -> bool:
    """Whether there is such a package."""
    _, cpu, *musl = platform.split("-")
    machine = ("--force", "--os=linux", f"--cpu={cpu}", f"--libc={'musl' if musl else 'glibc'}")
    with tempfile.TemporaryDirectory() as place:
        Path(place, "package.json").write_bytes(manifest(package, version))
        command = [sys.executable, "-m", "tests.support.node", "npm", "install", *HOW, *machine, "--prefix", place]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            return False
        (LOCKS / lock_name(package, version)).write_bytes(Path(place, "package-lock.json").read_bytes())
        return True


def main() -> None:
    for package, version, platform in packages():
        told = "written" if write(package, version, platform) else "the registry has no such package"
        sys.stdout.write(f"{package.name} {version}: {told}\n")


if __name__ == "__main__":
    main()
