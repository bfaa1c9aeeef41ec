"""The proxy's process: started detached from the gateway, and found again by the note that its start left.

Its door is a packet socket in `<data>/run`, made here and handed down: it exists before the process listens, and early
clients wait.
"""

import hashlib
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox.client import http1
from sandbox.providers.local.launch import spawn
from sandbox.providers.local.processes import Process, boot_id
from sandbox.system import public_address
from sandbox.system.interpreter import PYTHON

NOTE, DOOR, LOG = "egress.json", "egress.sock", "egress.log"
DESCRIPTOR = 3
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONPATH", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class ProxyNote:
    """A pid alone identifies no process after it was reused, so it comes with its start time, valid for one boot."""

    pid: int
    started: int
    boot: str

    @property
    def process(self) -> Process:
        return Process(self.pid, self.started)

    @property
    def runs(self) -> bool:
        return self.boot == boot_id() and self.process.alive


def release() -> str:
    """A digest of the proxy's code, and of what it goes by: a process with other code is replaced."""
    digest = hashlib.sha256()
    ours = sorted(Path(__file__).parent.rglob("*.py"))
    for path in (*ours, Path(public_address.__file__), Path(http1.__file__)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def noted(run: Path) -> ProxyNote | None:
    try:
        return ProxyNote(**json.loads((run / NOTE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def knock(run: Path) -> socket.socket:
    """Connect to the proxy's door. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    directory = os.open(run, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.setblocking(False)
        connection.connect(f"/proc/self/fd/{directory}/{DOOR}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(directory)
    return connection


def start(run: Path, environ: Mapping[str, str]) -> ProxyNote:
    """Start a proxy in place of one that has ended, or retires. Blocks briefly. Raises OSError."""
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = os.open(run / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with _door(run) as door:
            env = {name: environ[name] for name in _PASSED_ON if name in environ}
            argv = [PYTHON, "-P", "-m", "gateway", "egress"]
            process = spawn(argv, env, output=log, descriptors={DESCRIPTOR: door.fileno()})
    finally:
        os.close(log)
    note = ProxyNote(process.pid, process.started, boot_id())
    new = run / f"{NOTE}.new"
    new.write_text(json.dumps(asdict(note)))
    new.replace(run / NOTE)
    return note


def _door(run: Path) -> socket.socket:
    (run / DOOR).unlink(missing_ok=True)
    directory = os.open(run, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{DOOR}")
        os.chmod(DOOR, 0o600, dir_fd=directory)
        listener.listen(8)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener
