"""The tools that bench/sync.py compares: Holdfast and its peers. Each has its own bucket on the same server.

A repository is a place in the bucket that begins empty. Every tool, like the server, may use the whole machine.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import obstore
from obstore.store import S3Store

from bench.peers import environment
from bench.processes import END_SECONDS, REPOSITORY
from tests.support.s3 import S3Place

PIECE = 8 << 20
# The usual tuning. Comparing only sizes would miss a changed byte.
TUNED = ("--fast-list", "--transfers", "16", "--checkers", "16", "--size-only")


class ToolFailed(Exception):
    """A program did not end as it should. The text has its last output."""


class Tool(ABC):
    """One way to keep a workspace. Each method returns the seconds it took."""

    name: str
    is_slow = False  # if so, a first sync and a restore are measured once

    def __init__(self, place: S3Place) -> None:
        self.place = place

    def begin(self, repository: str) -> None:
        """Make a repository, if the tool needs that step. It is not timed."""
        return None

    @abstractmethod
    def push(self, repository: str, workspace: Path) -> float: ...

    @abstractmethod
    def restore(self, repository: str, workspace: Path, target: Path) -> float:
        """Restore what was pushed from `workspace` into the empty `target`."""
        ...

    def restored(self, workspace: Path, target: Path) -> Path:
        """The directory in `target` that has the files after a restore."""
        return target

    def new_target(self, scratch: Path, name: str) -> Path:
        """An empty directory to restore into. Making it is not timed."""
        target = scratch / name
        target.mkdir(parents=True)
        return target


class Rclone(Tool):
    is_slow = True

    def __init__(self, place: S3Place, name: str, *options: str) -> None:
        super().__init__(place)
        self.name = name
        self._options = options
        self._remote = (
            f":s3,provider=SeaweedFS,access_key_id={place.access_key_id},secret_access_key={place.secret_access_key},"
            f"endpoint='{place.endpoint}',force_path_style=true:{place.bucket}"
        )

    def push(self, repository: str, workspace: Path) -> float:
        return self._sync(str(workspace), f"{self._remote}/{repository}")

    def restore(self, repository: str, workspace: Path, target: Path) -> float:
        return self._sync(f"{self._remote}/{repository}", str(target))

    def _sync(self, source: str, target: str) -> float:
        program = str(Path(sys.executable).parent / "rclone")
        return timed([program, "sync", "--config", "", *self._options, source, target])


class Aws(Tool):
    """The aws CLI in its own environment, made when first needed, because aws pins its dependencies."""

    name = "aws s3 sync"
    is_slow = True

    def __init__(self, place: S3Place) -> None:
        super().__init__(place)
        program = environment("awscli") / "aws"
        self._sync = [str(program), "--endpoint-url", place.endpoint, "s3", "sync", "--only-show-errors", "--delete"]
        self._env = {
            **place.environ,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }

    def push(self, repository: str, workspace: Path) -> float:
        return timed([*self._sync, str(workspace), self._url(repository)], self._env)

    def restore(self, repository: str, workspace: Path, target: Path) -> float:
        return timed([*self._sync, self._url(repository), str(target)], self._env)

    def _url(self, repository: str) -> str:
        return f"s3://{self.place.bucket}/{repository}/"


class Restic(Tool):
    name = "restic"

    def __init__(self, place: S3Place, cache: Path) -> None:
        super().__init__(place)
        self._env = {**place.environ, "RESTIC_PASSWORD": "bench", "RESTIC_CACHE_DIR": str(cache)}

    def begin(self, repository: str) -> None:
        self._restic(repository, "init")

    def push(self, repository: str, workspace: Path) -> float:
        return self._restic(repository, "backup", str(workspace))

    def restore(self, repository: str, workspace: Path, target: Path) -> float:
        return self._restic(repository, "restore", "latest", "--target", str(target))

    def restored(self, workspace: Path, target: Path) -> Path:
        return target / workspace.relative_to("/")

    def _restic(self, repository: str, *words: str) -> float:
        place = self.place
        return timed(["restic", "-q", "-r", f"s3:{place.endpoint}/{place.bucket}/{repository}", *words], self._env)


class Tar(Tool):
    """Sends the whole tree each time, compressed while it is read, in parts sent while it is compressed."""

    name = "tar + zstd -3"

    def __init__(self, place: S3Place) -> None:
        super().__init__(place)
        self._store = S3Store(
            place.bucket,
            endpoint=place.endpoint,
            region="us-east-1",
            access_key_id=place.access_key_id,
            secret_access_key=place.secret_access_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    def push(self, repository: str, workspace: Path) -> float:
        began = time.perf_counter()
        with piped(f"tar -C '{workspace}' -cf - . | zstd -q -3 -T1 -c", stdout=subprocess.PIPE) as packing:
            assert packing.stdout is not None
            pieces = iter(partial(packing.stdout.read, PIECE), b"")
            obstore.put(self._store, f"{repository}.tar.zst", pieces, use_multipart=True, chunk_size=PIECE)
        return time.perf_counter() - began

    def restore(self, repository: str, workspace: Path, target: Path) -> float:
        began = time.perf_counter()
        with piped(f"zstd -q -d -c | tar -C '{target}' -xf -", stdin=subprocess.PIPE) as unpacking:
            assert unpacking.stdin is not None
            for piece in obstore.get(self._store, f"{repository}.tar.zst").stream(1 << 20):
                unpacking.stdin.write(piece)
            unpacking.stdin.close()
        return time.perf_counter() - began


class Holdfast(Tool):
    """A gateway's process and real bridges. A workspace is that of one of its sandboxes."""

    name = "holdfast"

    def __init__(self, place: S3Place, data_dir: Path, log: Path) -> None:
        super().__init__(place)
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.sync_gateway"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={"PATH": os.environ["PATH"], "HOLDFAST_DATA_DIR": str(data_dir), **place.environ},
                cwd=REPOSITORY,
            )
        self._log = log

    def start(self, sandbox: str) -> Path:
        """Start a new sandbox and return its empty workspace."""
        return Path(str(self._ask("start", sandbox)))

    def new_target(self, scratch: Path, name: str) -> Path:
        return self.start(name)

    def push(self, repository: str, workspace: Path) -> float:
        return float(str(self._ask("push", repository, _sandbox(workspace))))

    def restore(self, repository: str, workspace: Path, target: Path) -> float:
        return float(str(self._ask("restore", repository, _sandbox(target))))

    def close(self) -> None:
        """End the gateway and its sandboxes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, *words: str) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ToolFailed(f"the gateway ended:\n{self._log.read_text(errors='replace')[-2000:]}")
        return json.loads(answer)


def _sandbox(workspace: Path) -> str:
    return workspace.parent.parent.name


def timed(command: list[str], env: Mapping[str, str] | None = None) -> float:
    """Run a command to its end and return its seconds. Raises ToolFailed."""
    began = time.perf_counter()
    ended = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if ended.returncode:
        raise ToolFailed(f"{' '.join(command[:3])}: {ended.stderr[-500:]}")
    return seconds


@contextmanager
def piped(command: str, **pipes: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a shell pipeline. On leaving, wait until it has ended successfully. Raises ToolFailed."""
    with subprocess.Popen(["bash", "-c", f"set -o pipefail; {command}"], **pipes) as process:  # type: ignore[call-overload]
        yield process
    if process.returncode:
        raise ToolFailed(f"{command} ended with {process.returncode}")


def find_restic() -> bool:
    """Whether there is a restic. It is installed if that is possible."""
    if shutil.which("restic") is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        subprocess.run(["apt-get", "install", "-qq", "-y", "restic"], capture_output=True, check=False)
    return shutil.which("restic") is not None
