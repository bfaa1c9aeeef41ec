"""The image of deploy/Dockerfile without a container engine: its environment, built from the packages installed here,
in a root that has the system's programs and nothing else of this machine."""

import importlib.metadata
import re
import shutil
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
USER = "10001"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==", re.MULTILINE)
_SCRIPT = "#!{python}\nfrom gateway.cli.main import run\nrun()\n"


def make_environment(directory: Path, place: str) -> None:
    """A virtual environment at `directory` that is to lie at `place`: the pinned packages, and Holdfast's own."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    packages = directory / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for name in _PINNED.findall((ROOT / "requirements-run.txt").read_text()):
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for other systems
        for file in files:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), target)
    for own in ("gateway", "persistence", "sync", "sandbox"):
        shutil.copytree(ROOT / own, packages / own, ignore=shutil.ignore_patterns("__pycache__", "page"))
    script = directory / "bin" / "holdfast"
    script.write_text(_SCRIPT.format(python=f"{place}/bin/python"))
    script.chmod(0o755)


def in_image(environment: Path, place: str, data: Path, env: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """The command line that runs `command` as the image's user, with `environment` at `place` and `data` at /data. All
    that it starts ends with it. Its /proc is whole, as with `systempaths=unconfined`; bwrap's own has parts covered."""
    argv = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv += ["bwrap", "--unshare-user", "--uid", USER, "--gid", USER, "--die-with-parent", "--clearenv"]
    argv += ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--bind", "/proc", "/proc", "--dev", "/dev"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            argv += ["--ro-bind", str(path), str(path)]
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        argv += ["--ro-bind", sys.base_prefix, sys.base_prefix]  # where the image's own Python would be
    argv += ["--tmpfs", "/tmp", "--ro-bind", str(environment), place, "--bind", str(data), "/data", "--chdir", "/data"]
    for name, value in env.items():
        argv += ["--setenv", name, value]
    return [*argv, "--", *command]
