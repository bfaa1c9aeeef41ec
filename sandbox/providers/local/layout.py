"""The local provider's directories, and the note by which a later gateway finds a running bridge again."""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


@dataclass(frozen=True, slots=True)
class BridgeNote:
    """A bridge process as noted in `bridge.json` (0600: the token is in it).

    `init_pid` is the first process inside: of the pid namespace at level contained, the bridge itself at trusted. A pid
    alone says nothing after it was reused, so each comes with its start time, valid for one boot of the host.
    """

    session_id: str
    incarnation: int
    level: str
    socket: str
    token: str
    pid: int
    started: int
    init_pid: int
    init_started: int
    boot: str
    group: Mapping[str, object] = field(default_factory=dict)  # its control group, if it has one


class SandboxHome:
    """The directory of one session's sandbox. Makes nothing until asked.

    The two roots lie in `kept`, and a bridge mounts `kept`: a mount point cannot be renamed, what is in it can, so a
    restored tree takes the old one's place in one step. That also means that the sandbox may put anything where the
    roots should be: from outside, nothing in `kept` is followed. At level `contained` the roots are mounted as well,
    for the programs, so they are made before a bridge starts (sandbox/tree/kept_roots.py); at `trusted` by the bridge.
    """

    def __init__(self, data_dir: Path, session_id: str) -> None:
        if not _SESSION_ID.fullmatch(session_id):
            raise ValueError(f"not a session id: {session_id!r}")
        self.session_id = session_id
        self.root = data_dir / "sandboxes" / session_id
        self.kept = self.root / "kept"
        self.workspace = self.kept / "workspace"
        self.agent = self.kept / "agent"
        self.state = self.root / "state"
        self.note = self.root / "bridge.json"
        self.bridge_log = self.root / "bridge.log"
        # In `state`, because the bridge writes it from inside and may have to create it again.
        self.agent_log = self.state / "agent.log"
        self.socket = hashlib.sha256(session_id.encode()).hexdigest()[:16] + ".sock"

    @property
    def marker(self) -> str:
        """Names this sandbox on this host; every process of it has it in its environment when it starts."""
        return hashlib.sha256(f"{self.root.absolute()}".encode()).hexdigest()[:32]

    def make(self) -> None:
        """Make the missing directories, except the roots: a restore may have been cut short."""
        for path in (self.root, self.kept, self.state):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("workspace", "agent"):  # where an earlier version kept them
            if (self.root / name).is_dir() and not os.path.lexists(self.kept / name):
                (self.root / name).rename(self.kept / name)

    def workspace_is_empty(self) -> bool:
        """Whether the workspace is missing or empty."""
        try:
            fd = os.open(self.workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            return not os.listdir(fd)
        finally:
            os.close(fd)

    def read_note(self) -> BridgeNote | None:
        """The last noted bridge; None if there is none or the note is unreadable. Unknown members of a newer
        gateway's note are ignored: its bridge runs all the same."""
        try:
            members = json.loads(self.note.read_bytes())
            known = [each.name for each in fields(BridgeNote)]
            return BridgeNote(**{name: members[name] for name in known if name in members})
        except (OSError, ValueError, TypeError):
            return None

    def write_note(self, bridge: BridgeNote) -> None:
        write_private(self.note, asdict(bridge))

    def drop_note(self) -> None:
        self.note.unlink(missing_ok=True)

    def logs(self, limit: int) -> bytes:
        """The last bytes of both logs, the agent's last; the bridge's gets at most a quarter of the room."""
        bridge = tail(self.bridge_log, limit // 4)
        return bridge + tail(self.agent_log, limit - len(bridge))


def write_private(path: Path, members: Mapping[str, Any]) -> None:
    """A JSON file that only we read, in one step in the place of an older one."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        json.dump(members, file)
    draft.rename(path)


def tail(path: Path, limit: int) -> bytes:
    """The last `limit` bytes of a regular file; b"" for anything else. The sandbox may have put anything there."""
    if limit <= 0:
        return b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.ENOTDIR):
            return b""
        raise
    try:
        kept = os.fstat(fd)
        if not stat.S_ISREG(kept.st_mode):
            return b""  # before a file object is made: a directory cannot have one
        with open(fd, "rb", closefd=False) as file:
            file.seek(max(kept.st_size - limit, 0))
            return file.read(limit)
    finally:
        os.close(fd)
