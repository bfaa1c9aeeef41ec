"""The first program in a container: it fetches the bridge's configuration, limits itself, and becomes the bridge.

An engine passes no descriptors; it shows arguments and environment to anybody who may inspect, and writes both to its
disk. So a container gets a read-only directory with one socket in it. Over that the gateway sends three descriptors:
the configuration (a pipe), the listening socket, bound outside where nothing inside can reach or replace it, and the
log. From here on everything is as in a sandbox of the local fleet. If no listening socket can get in, the connection
to the door stays, and brings the others (sandbox/bridge/handed.py).

It runs from the kit. It must name the kit's packages itself, and imports nothing else of ours before that.

    <kit>/python -I -S door.py <path of the door> <seconds> <rlimits as JSON>
"""

import ctypes
import os
import runpy
import socket
import sys
from pathlib import Path

DESCRIPTORS = 3  # configuration, listening socket, log
KEEP = b"k"  # no listening socket comes: connections do, over this one
_SET_NAME, _NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 15, 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def main() -> None:
    sys.path.append(str(Path(__file__).parents[3]))
    door, seconds, rlimits = sys.argv[1:]
    received = _receive(door, float(seconds))
    hold_back()
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv = ["holdfast-bridge", rlimits, *received]
    runpy.run_module("sandbox.providers.local.init", run_name="__main__", alter_sys=True)


def hold_back() -> None:
    """Add our own filter of system calls to the engine's, which may be older, looser, or none. Filters add up, and whom
    no_new_privs holds may add one."""
    from sandbox.providers.local import seccomp

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NAME, b"holdfast-bridge", 0, 0, 0)
    program = seccomp.program()
    if program is None:  # there is none for this architecture: the engine's filter applies
        return
    code = ctypes.create_string_buffer(program, len(program))
    given = _Program(len(program) // 8, ctypes.addressof(code))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(given), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter of system calls could not be set")


def _receive(door: str, seconds: float) -> list[str]:
    """The gateway's message, in the form of a bridge's configuration. A silent gateway is not waited for: this
    container would be nobody's."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(seconds)
    connection.connect(door)
    said, received, _, _ = socket.recv_fds(connection, 1, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    if said == KEEP and len(received) == DESCRIPTORS - 1:
        config, log = map(str, received)
        return [config, f"{connection.detach()}:{door}", log]
    connection.close()
    if len(received) != DESCRIPTORS:
        sys.exit("the gateway sent no descriptors")
    return [str(each) for each in received]


if __name__ == "__main__":
    main()
