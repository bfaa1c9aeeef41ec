"""A real S3 server with its own directory and ports, and buckets on it.

    with S3Server() as server:
        place = server.make_place()
        async with place.objects() as store: ...

It is SeaweedFS, in one process. It ends with the thread that started it, however that ends: start it from the main
thread.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlencode
from uuid import uuid4

from gateway.config.objects_url import completed, objects_url
from sync.objects.s3 import S3Objects

ACCESS_KEY_ID, SECRET_ACCESS_KEY = "holdfast-test", "correct-horse-battery-staple"
START_SECONDS = 60.0
_LISTENERS = ("master", "volume", "filer", "s3", "admin")
_OFF = ("-webdav=false", "-admin.ui=false", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0")


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket, or a prefix in one, with its keys."""

    endpoint: str
    bucket: str
    prefix: str = ""
    region: str = "auto"
    access_key_id: str = ACCESS_KEY_ID
    secret_access_key: str = SECRET_ACCESS_KEY

    @property
    def url(self) -> str:
        """As HOLDFAST_OBJECTS takes it."""
        options = urlencode({"endpoint": self.endpoint, "region": self.region})
        return f"s3://{self.bucket}/{self.prefix}?{options}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a gateway that uses it."""
        return {
            "HOLDFAST_OBJECTS": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
        }

    def at(self, port: int) -> "S3Place":
        """The same, through a proxy on this machine."""
        return replace(self, endpoint=f"http://127.0.0.1:{port}")

    def objects(self, *, request_seconds: float = 30.0) -> S3Objects:
        return S3Objects(
            self.bucket,
            endpoint=self.endpoint,
            region=self.region,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            prefix=self.prefix,
            request_seconds=request_seconds,
        )


class _Server:
    """A program with its own directory, which is removed at the end."""

    def __init__(self) -> None:
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-s3-"))
        try:
            self._start_on_free_ports()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it at its old place. Raises RuntimeError with the end of its log if it does not come up."""
        log = self._directory / "log"
        with log.open("ab") as output:
            # Orphaned, it is killed: no process stays behind a test run that was.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command()],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the S3 server did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """An orderly stop; takes seconds."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait()

    def kill(self) -> None:
        """In the middle of what it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Start again with the same data and ports. To kill it first is the caller's part."""
        self.stop()
        self.start()

    def _start_on_free_ports(self) -> None:
        for attempt in range(5):
            self._choose_ports()
            try:
                self.start()
            except RuntimeError:
                if attempt == 4:  # another process took a port first, but not five times
                    raise
            else:
                return

    def _choose_ports(self) -> None:
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def _remove(self) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


class S3Server(_Server):
    """SeaweedFS: checks signatures, honours conditional writes, keeps its data when it is killed."""

    def __init__(self) -> None:
        super().__init__()
        self._ports: dict[str, tuple[int, int]] = {}
        self._bucket: S3Place | None = None

    def make_bucket(self) -> S3Place:
        """A new, empty one."""
        name = f"bucket-{uuid4().hex}"
        _ask(f"http://127.0.0.1:{self._ports['filer'][0]}/buckets/{name}/", method="POST")
        return S3Place(self.endpoint, name)

    def make_place(self) -> S3Place:
        """Below a new prefix of one bucket: the first write to a bucket takes long."""
        self._bucket = self._bucket or self.make_bucket()
        return replace(self._bucket, prefix=uuid4().hex)

    def _choose_ports(self) -> None:
        free = free_ports(2 * len(_LISTENERS))
        self._ports = {name: (free.pop(), free.pop()) for name in _LISTENERS}
        self.port = self._ports["s3"][0]
        keys = [{"accessKey": ACCESS_KEY_ID, "secretKey": SECRET_ACCESS_KEY}]
        identity = {"name": "test", "credentials": keys, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        (self._directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self._directory / "data").mkdir(exist_ok=True)

    def _command(self) -> list[str]:
        listeners = [
            option
            for name, (plain, grpc) in self._ports.items()
            for option in (f"-{name}.port={plain}", f"-{name}.port.grpc={grpc}")
        ]
        # Buckets are made explicitly: a missing bucket must be refused, as elsewhere.
        return [
            str(Path(sys.executable).parent / "weed"),
            "-logtostderr=true",
            "mini",
            f"-dir={self._directory}/data",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            *listeners,
            *_OFF,
            "-s3.autoCreateBucket=false",
            f"-s3.config={self._directory}/s3.json",
            f"-s3.localSocket={self._directory}/s3.sock",
            f"-filer.localSocket={self._directory}/filer.sock",
        ]

    def _is_ready(self) -> bool:
        return _answers(f"{self.endpoint}/healthz") and _answers(f"http://127.0.0.1:{self._ports['filer'][0]}/")

    def _remove(self) -> None:
        super()._remove()
        for name, (_, grpc) in self._ports.items():  # these it puts where it likes
            with suppress(OSError):
                Path(f"/tmp/seaweedfs-{name}-grpc-{grpc}.sock").unlink()


class CarelessS3Server(_Server):
    """`rclone serve s3`: takes conditional writes and ignores their conditions."""

    def make_bucket(self) -> S3Place:
        name = f"bucket-{uuid4().hex}"
        (self._directory / "data" / name).mkdir()
        return S3Place(self.endpoint, name)

    def _choose_ports(self) -> None:
        (self.port,) = free_ports(1)
        (self._directory / "data").mkdir(exist_ok=True)

    def _command(self) -> list[str]:
        keys = f"{ACCESS_KEY_ID},{SECRET_ACCESS_KEY}"
        program = str(Path(sys.executable).parent / "rclone")
        listen = ["--addr", f"127.0.0.1:{self.port}", "--auth-key", keys, "--config", ""]
        return [program, "serve", "s3", *listen, f"{self._directory}/data"]

    def _is_ready(self) -> bool:
        return _answers(self.endpoint)


def fresh_place(environ: Mapping[str, str], own: Callable[[], S3Server]) -> S3Place:
    """An empty place: below a new prefix of HOLDFAST_TEST_S3_URL (with AWS_ACCESS_KEY_ID and the rest beside it), or on
    a server of our own."""
    given = environ.get("HOLDFAST_TEST_S3_URL")
    if given is None:
        return own().make_place()
    url = completed(objects_url(given), environ)
    assert url.keys is not None
    return S3Place(
        url.endpoint,
        url.bucket,
        f"{url.prefix}/{uuid4().hex}".strip("/"),
        url.region,
        url.keys.access_key_id,
        url.keys.secret_access_key.get_secret_value(),
    )


def free_ports(count: int) -> list[int]:
    """Different ones, that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _answers(url: str) -> bool:
    try:
        _ask(url)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _ask(url: str, method: str = "GET") -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
        answer.read()
