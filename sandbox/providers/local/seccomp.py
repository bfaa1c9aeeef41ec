"""The system calls that a contained sandbox may not make: a classic BPF program for `bwrap --seccomp`.

A deny list, not an allow list: agents run compilers, browsers and debuggers. It denies calls that no ordinary program
needs and that kernel bugs and escapes use: mounting, new namespaces, modules, keys, BPF, raw kernel interfaces,
socket families that no network namespace holds back, typing into another's terminal, and setuid and setgid bits: with
a gateway that runs as root, such a file would be a root shell for anybody on the host who reaches a copy of it.
"""

import platform
import struct

_LOAD, _JEQ, _JSET, _JGE, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NR, _ARCH, _ARGS = 0, 4, 16
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_X32 = 0x40000000

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# AX25, APPLETALK, NETROM, X25, PACKET, RDS, TIPC, BLUETOOTH, ALG, NFC, VSOCK, KCM, QIPCRTR, SMC, XDP: not needed by
# programs, and vsock reaches the host of a virtual machine from any network namespace.
_FAMILIES = (3, 5, 6, 9, 17, 21, 30, 31, 38, 39, 40, 41, 42, 43, 44)

# name: (x86_64, aarch64); None where the architecture has no such call.
_DENIED: dict[str, tuple[int | None, int]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "syslog": (103, 116),
    "iopl": (172, 0xFFFF),
    "ioperm": (173, 0xFFFF),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
    "process_madvise": (440, 440),
}
# Programs try these first and fall back when the kernel does not have them.
_ABSENT: dict[str, tuple[int, int]] = {
    "clone3": (435, 435),  # its flags lie in memory, where a filter cannot look
    "openat2": (437, 437),  # likewise its mode
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
# Calls that give a file its mode, and the number of that argument; `open` only when it creates one. (`mkdir` drops
# the bits.)
_SET_ID_BITS = 0o6000
_MODE_AT: dict[str, tuple[int | None, int | None, int]] = {
    "chmod": (90, None, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
    "creat": (85, None, 1),
    "mknod": (133, None, 1),
    "mknodat": (259, 33, 2),
}
_OPEN: tuple[int, int | None] = (2, None)
_OPENAT: tuple[int, int | None] = (257, 56)
_MAKES_A_FILE = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_UNSHARE, _CLONE, _IOCTL, _SOCKET = (272, 97), (56, 220), (16, 29), (41, 198)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def program(machine: str | None = None) -> bytes | None:
    """The filter for this machine as bwrap reads it; None if there is none for its architecture."""
    known = _ARCHITECTURES.get(machine or platform.machine())
    if known is None:
        return None
    column, architecture = known
    code = [
        _op(_LOAD, _ARCH),
        _op(_JEQ, architecture, 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NR),
    ]
    if column == 0:
        code += [_op(_JGE, _X32, 0, 1), _op(_RETURN, _ERRNO | _ENOSYS)]
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None:
            code += _refuse(number, _EPERM)
    for numbers in _ABSENT.values():
        code += _refuse(numbers[column], _ENOSYS)
    code += _if(_UNSHARE[column], 0, [_op(_JSET, _NEW_NAMESPACES, 0, 1), _op(_RETURN, _ERRNO | _EPERM)])
    code += _if(_CLONE[column], 0, [_op(_JSET, _NEW_NAMESPACES, 0, 1), _op(_RETURN, _ERRNO | _EPERM)])
    code += _if(_IOCTL[column], 1, [*_refuse(_TIOCSTI, _EPERM), *_refuse(_TIOCLINUX, _EPERM)])
    code += _if(_SOCKET[column], 0, [op for family in _FAMILIES for op in _refuse(family, _EAFNOSUPPORT)])
    for *calls, argument in _MODE_AT.values():
        if (call := calls[column]) is not None:
            code += _if(call, argument, _refuse_set_id())
    for opens, flags in ((_OPEN, 1), (_OPENAT, 2)):
        if (call := opens[column]) is not None:
            mode = [_op(_LOAD, _ARGS + 8 * (flags + 1)), *_refuse_set_id()]
            code += _if(call, flags, [_op(_JSET, _MAKES_A_FILE, 0, len(mode)), *mode])
    code.append(_op(_RETURN, _ALLOW))
    return b"".join(code)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(value: int, error: int) -> list[bytes]:
    return [_op(_JEQ, value, 0, 1), _op(_RETURN, _ERRNO | error)]


def _refuse_set_id() -> list[bytes]:
    return [_op(_JSET, _SET_ID_BITS, 0, 1), _op(_RETURN, _ERRNO | _EPERM)]


def _if(call: int, argument: int, body: list[bytes]) -> list[bytes]:
    """`body` with the low half of an argument loaded, for one call only; what it does not refuse is allowed."""
    inner = [_op(_LOAD, _ARGS + 8 * argument), *body, _op(_RETURN, _ALLOW)]
    return [_op(_JEQ, call, 0, len(inner)), *inner]
