"""Contents of typical images: with glibc, with their own Python, with musl. They are made of the Debian packages on
this machine, so nothing is fetched."""

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

_LIBRARY = re.compile(r"(/\S+) \(0x[0-9a-f]+\)")
MUSL = Path(f"/lib/ld-musl-{platform.machine()}.so.1")
# No header and no start file is needed: what runs before `_start` is musl's own loader.
_GREETING = """
int puts(const char *text);
void exit(int code);
void _start(void) { puts("musl was here"); exit(0); }
"""


def glibc(*programs: str) -> dict[str, bytes]:
    """A shell and some programs, each linked to glibc, with every library they want."""
    found: dict[str, bytes] = {}
    for name in ("dash", "id", "cat", "readlink", *programs):
        found |= _with_libraries(Path(shutil.which(name, path="/usr/bin:/bin") or name))
    return found | {"bin/sh": found["usr/bin/dash"]}


def with_python() -> tuple[dict[str, bytes], str]:
    """The same and the system's own Python, as Debian's smallest packages have it; and the version of that."""
    program = Path("/usr/bin/python3").resolve()
    version = program.name.removeprefix("python")
    library = _files_of(f"libpython{version}-minimal")
    return glibc() | _with_libraries(program) | library | {"usr/bin/python3": program.read_bytes()}, version


def musl() -> dict[str, bytes]:
    """musl and a program linked to it: to put beside a static shell."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory, "greeting")
        Path(directory, "greeting.c").write_text(_GREETING)
        link = [f"-Wl,-dynamic-linker,{MUSL}", "-Wl,--no-as-needed", str(MUSL.resolve())]
        options = ["-nostdlib", "-nostartfiles", "-fno-stack-protector", "-no-pie"]
        argv = ["cc", *options, "-o", str(made), f"{made}.c", *link]
        subprocess.run(argv, check=True, capture_output=True)
        program, loader = made.read_bytes(), MUSL.resolve()
    assert b"GLIBC" not in program
    return {"bin/greeting": program} | {str(path)[1:]: loader.read_bytes() for path in (MUSL, loader)}


def _with_libraries(program: Path) -> dict[str, bytes]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return _read([str(program), *_LIBRARY.findall(said)])


def _files_of(package: str) -> dict[str, bytes]:
    said = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True, check=True).stdout
    return _read(line for line in said.splitlines() if line.startswith("/usr/lib/"))


def _read(paths: Iterable[str]) -> dict[str, bytes]:
    return {path[1:]: Path(path).read_bytes() for path in paths if os.path.isfile(path)}
