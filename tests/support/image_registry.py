"""A registry of container images on loopback, with or without a login, for the engines of the tests.

with ImageRegistry() as registry:
    engine.client("push", f"{registry.address}/team/image:1")
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import blocking_until

USER, PASSWORD = "reader", "a-password-of-the-tests"
_HASHED = "$2b$04$abcdefghijklmnopqrstuuKFZ0q2semF/p2kYa7/GtH6iuoBOhxfK"  # bcrypt, as quick as it can be
_LISTENING = re.compile(rb"listening on (127\.0\.0\.1:\d+)")


def registry_missing() -> str | None:
    """Why there can be no registry here, in one line; None if there can."""
    if shutil.which("docker-registry") is None:
        return "docker-registry not installed: deploy/test-packages.sh names the package"
    return None


class ImageRegistry:
    """`login`: pulls and pushes need USER with PASSWORD."""

    def __init__(self, *, login: bool = False) -> None:
        self._login = login
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="hf-registry-", dir="/tmp"))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._directory)

    def start(self) -> None:
        """Start it at its old port, if it ran before."""
        at = self._directory
        (at / "users").write_text(f"{USER}:{_HASHED}\n")
        auth = f"auth: {{htpasswd: {{realm: tests, path: {at}/users}}}}\n" if self._login else ""
        (at / "config.yml").write_text(
            f"version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {at}/data}}}}\n"
            f"http: {{addr: '{self.address or '127.0.0.1:0'}'}}\n{auth}"
        )
        log = at / "log"
        with log.open("wb") as file:
            argv = ["setpriv", "--pdeathsig", "KILL", "docker-registry", "serve", str(at / "config.yml")]
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

        def listens() -> re.Match[bytes] | None:
            assert self._process is not None
            assert self._process.poll() is None, log.read_text()
            return _LISTENING.search(log.read_bytes())

        self.address = blocking_until(listens, "a registry that listens")[1].decode()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
