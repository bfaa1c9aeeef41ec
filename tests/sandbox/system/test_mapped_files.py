"""A mapped file is found by asking the kernel first as it is found in the programs' lists alone."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.system import mapped_files
from sandbox.system.mapped_files import find_mapped

HOLDS = """
import mmap, sys
path, access = sys.argv[1:]
with open(path, "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0, access=getattr(mmap, access))
    anonymous = mmap.mmap(-1, 8192)
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(path: Path, access: str) -> Iterator[None]:
    """A program that has the file as memory."""
    command = [sys.executable, "-c", HOLDS, str(path), access]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        yield


@pytest.fixture(params=["asked", "from the lists alone"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "asked":
        monkeypatch.setattr(mapped_files, "_PROCMAP_QUERY", 0)  # an older kernel does not know the question


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("access", "found"), [("ACCESS_WRITE", True), ("ACCESS_COPY", False), ("ACCESS_READ", False)])
def test_a_file_is_found_that_a_program_shares_as_writable_memory(tmp_path: Path, access: str, found: bool) -> None:
    file, beside = tmp_path / "mapped", tmp_path / "beside"
    for path in (file, beside):
        path.write_bytes(bytes(8192))
    with holding(file, access):
        inodes = find_mapped(tmp_path).inodes
    assert (file.stat().st_ino in inodes, beside.stat().st_ino in inodes) == (found, False)
    assert file.stat().st_ino not in find_mapped(tmp_path).inodes
