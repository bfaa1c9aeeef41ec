"""Makes the kit: a directory that runs a bridge in any Linux image of this CPU, whatever libc it has, or none.

    python -m sandbox.providers.container.kit_maker <directory of kits>

It is this very interpreter with the loader it was linked for, every shared library, the part of the standard library
that a bridge can reach, its packages, and the `sandbox` package. Nothing is compiled, downloaded or installed. A
kit's name depends on all its content, so another version makes another kit, and it is in its place whole or not at
all.
"""

import compileall
import contextlib
import fcntl
import os
import platform
import py_compile
import re
import secrets
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from blake3 import blake3

import sandbox

PACKAGES = (
    "anyio",
    "blake3",
    "click",
    "httptools",
    "idna",
    "msgspec",
    "orjson",
    "pathspec",
    "pyfastcdc",
    "starlette",
    "typing_extensions",
    "uvicorn",
    "uvloop",
    "websockets",
    "zstandard",
)
MANIFEST = "KIT"
_PARTS_OF_NO_BRIDGE = frozenset(
    {
        *("__phello__", "__pycache__", "_pyrepl", "config", "curses", "dbm", "distutils", "doctest.py", "ensurepip"),
        *("idlelib", "lib-dynload", "lib2to3", "mailbox.py", "msilib", "pdb.py", "pydoc.py", "pydoc_data"),
        *("site-packages", "sqlite3", "test", "tests", "tkinter", "turtle.py", "turtledemo", "unittest", "venv"),
        *("wsgiref", "xml", "xmlrpc"),
    }
)
_EXTENSIONS_OF_NO_BRIDGE = re.compile(
    r"_test|_tkinter|_sqlite3|_curses|_dbm|_gdbm|_ctypes_test|xx|_xx|readline|ossaudiodev|nis|audioop"
)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "test", "tests", "*.pyi", "*.pyx", "*.pxd", "*.c", "*.h")
_LIBRARY = re.compile(r"^\s*(\S+) => (/\S+)", re.MULTILINE)
_LOADER = re.compile(r"^\s*(/\S*/ld-\S+)", re.MULTILINE)


class KitFailed(Exception):
    """No kit can be made of this installation. The text says why."""


def name() -> str:
    """Of the kit that this installation makes: it changes when anything that goes into it does."""
    whole = blake3(f"{sys.version} {platform.machine()} {platform.libc_ver()}".encode())
    for place in (Path(sys.executable).resolve(), package(), *map(_found, PACKAGES)):
        for path in sorted(_files(place)):
            if path.parent.name == "__pycache__":
                continue  # comes and goes, and is not copied
            found = path.stat()
            whole.update(f"{path.relative_to(place.parent)}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return whole.hexdigest(16)


def is_whole(kit: Path) -> bool:
    """Whether it is unchanged, down to the last byte."""
    try:
        return (kit / MANIFEST).read_text() == _digest(kit)
    except OSError:
        return False


def make(kits: Path) -> Path:
    """The kit of this installation, made unless it is there. One is made at a time; other callers wait and find it.
    Raises KitFailed, OSError."""
    kits.mkdir(mode=0o755, parents=True, exist_ok=True)
    with open(os.open(kits / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kit = kits / name()
        if is_whole(kit):
            return kit
        for stale in kits.glob(".new-*"):  # of a maker that was killed: nobody else makes one now
            shutil.rmtree(stale)
        draft = kits / f".new-{secrets.token_hex(8)}"
        try:
            _fill(draft)
            _try(draft)
            with contextlib.suppress(FileNotFoundError):
                kit.rename(kits / f".new-{secrets.token_hex(8)}")  # damaged; the next maker removes it
            draft.rename(kit)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return kit


def start_line(kit: str) -> list[str]:
    """The command line of the Python in `kit`: by its own loader, so that neither libraries nor settings of the image
    count, and no variable is left for its children."""
    own = ["--inhibit-cache", "--library-path", f"{kit}/lib", "--argv0", f"{kit}/python"]
    return [f"{kit}/ld.so", *own, f"{kit}/python"]


def _fill(kit: Path) -> None:
    library = kit / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = kit / "packages"  # not site-packages: not every Python looks there
    (library / "lib-dynload").mkdir(parents=True)
    packages.mkdir()
    for entry in Path(sysconfig.get_path("stdlib")).iterdir():
        if entry.name not in _PARTS_OF_NO_BRIDGE and not entry.name.startswith("config-"):
            _copy(entry, library)
    for entry in Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so"):
        if not _EXTENSIONS_OF_NO_BRIDGE.match(entry.name):
            shutil.copyfile(entry, library / "lib-dynload" / entry.name)
    for place in (package(), *map(_found, PACKAGES)):
        _copy(place, packages)
    shutil.copyfile(Path(sys.executable).resolve(), kit / "python")
    _copy_libraries(kit, [library / "lib-dynload", packages])
    # By hash and unchecked: the times of files mean nothing on a mount, and nothing can be written there.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for directory in (library, packages):
        compileall.compile_dir(directory, quiet=2, invalidation_mode=mode, stripdir=kit)
    _make_readable(kit)
    (kit / MANIFEST).write_text(_digest(kit))
    (kit / MANIFEST).chmod(0o644)


def _copy(place: Path, directory: Path) -> None:
    if place.is_dir():
        shutil.copytree(place, directory / place.name, ignore=_LEFT_OUT, copy_function=shutil.copyfile)
    elif place.suffix in (".py", ".so"):
        shutil.copyfile(place, directory / place.name)


def _copy_libraries(kit: Path, directories: Iterable[Path]) -> None:
    """Copy every library that something in the kit is linked to, and the loader. A wheel's own library lies beside
    its user, and is there already."""
    programs = [Path(sys.executable).resolve(), *(so for each in directories for so in each.rglob("*.so*"))]
    told = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    loader = _LOADER.search(told)
    if loader is None:
        raise KitFailed("ldd names no loader: this Python is linked statically, or ldd is not installed")
    for library, path in _LIBRARY.findall(told):
        if not Path(path).is_relative_to(kit):
            shutil.copyfile(Path(path).resolve(), kit / "lib" / library)
    shutil.copyfile(Path(loader[1]).resolve(), kit / "ld.so")


def _make_readable(kit: Path) -> None:
    """For every user of any image, whatever the umask here."""
    for directory, _, files in os.walk(kit):
        os.chmod(directory, 0o755)
        for file in files:
            os.chmod(os.path.join(directory, file), 0o644)
    for program in ("ld.so", "python"):
        (kit / program).chmod(0o755)


def _try(kit: Path) -> None:
    """Run it once, as an image without anything would."""
    looks = f"import sys; sys.path.append({str(kit / 'packages')!r}); import sandbox.bridge.__main__, ssl, ctypes"
    tried = subprocess.run(
        [*start_line(str(kit)), "-I", "-S", "-c", looks], env={}, capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        raise KitFailed(f"the kit for sandboxes does not run: {tried.stderr.strip()[-500:]}")


def _digest(kit: Path) -> str:
    whole = blake3()
    for path in sorted(_files(kit)):
        if path.name != MANIFEST:
            content = path.read_bytes()
            mode = stat.S_IMODE(path.stat().st_mode)
            whole.update(f"{path.relative_to(kit)}\0{mode:o}\0{len(content)}\0".encode())
            whole.update(content)
    return whole.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    """Every file at or below `place`."""
    if not place.is_dir():
        yield place
    for directory, _, files in os.walk(place):
        yield from (Path(directory, file) for file in files)


def package() -> Path:
    """The directory of the `sandbox` package."""
    return Path(sandbox.__file__ or "").resolve().parent


def _found(package: str) -> Path:
    """Where Python would import it from."""
    for directory in map(Path, sys.path):
        for candidate in (directory / package, directory / f"{package}.py", *directory.glob(f"{package}.*.so")):
            if (candidate / "__init__.py").exists() or candidate.is_file():
                return candidate
    raise KitFailed(f"the package {package} is not installed")


def main() -> int:
    try:
        kit = make(Path(sys.argv[1]))
    except (KitFailed, OSError, subprocess.SubprocessError) as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.write(f"{kit.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
