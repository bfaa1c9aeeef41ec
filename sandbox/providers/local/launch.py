"""Starts a process that outlives its parent: its own session, inherited descriptors, no thread, no watcher."""

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.providers.local.processes import Process, find

_SIGNALS = [signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


def spawn(argv: Sequence[str], env: Mapping[str, str], *, output: int, descriptors: Mapping[int, int]) -> Process:
    """Run `argv` with `descriptors` (number in the child: ours), no input, its words to `output`. Raises OSError."""
    with contextlib.ExitStack() as stack:
        nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, nothing)
        actions = []
        wanted = {0: nothing, 1: output, 2: output, **descriptors}
        # Above every number the child gets, so that putting one in place never overwrites one still to be put. Not
        # higher than that: where few descriptors are allowed, high numbers do not exist.
        clear = max(wanted) + 1
        for target, source in wanted.items():
            moved = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, clear)
            stack.callback(os.close, moved)
            actions.append((os.POSIX_SPAWN_DUP2, moved, target))
        # Signals the gateway ignores or blocks are the child's to decide about.
        pid = os.posix_spawn(
            argv[0], list(argv), dict(env), file_actions=actions, setsid=True, setsigmask=[], setsigdef=_SIGNALS
        )
    # A child that is not waited for keeps its entry, so this finds it even if it ended already.
    return find(pid) or Process(pid, 0)


def open_log(path: Path) -> int:
    """A new, empty log in place of an old one; the caller closes it."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def listen(directory: int, name: str) -> socket.socket:
    """A listening unix socket in an open directory. The path goes through the descriptor: its length never matters."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{name}")
        os.chmod(name, 0o600, dir_fd=directory)
        listener.listen(64)
    except BaseException:
        listener.close()
        raise
    return listener


def memory_file(name: str, content: bytes) -> int:
    """A descriptor to read `content` from; the caller closes it."""
    fd = os.memfd_create(name)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
