"""Three system calls that Python has no name for. Each raises OSError, as the functions of `os` do."""

import ctypes
import errno
import functools
import os
from typing import NoReturn

_OPENAT2 = 437  # the same on every architecture
_RENAME_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)
# Calls that the kernel, the C library or the file system does not have; a filter of calls may answer EPERM.
_LACKING = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP})


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat2(directory: int, path: bytes, flags: int, resolve: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    given = (ctypes.c_long(_OPENAT2), ctypes.c_int(directory), ctypes.c_char_p(path))
    fd: int = _libc.syscall(*given, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    if fd < 0:
        _fail()
    return fd


@functools.cache
def has_openat2() -> bool:
    """Whether the call works here; asked once."""
    try:
        os.close(openat2(-1, b"/", os.O_PATH | os.O_DIRECTORY, 0))
    except OSError as exc:
        if exc.errno in _LACKING:
            return False
        raise
    return True


def exchange(one_directory: int, one: bytes, other_directory: int, other: bytes) -> bool:
    """Swap two names in one step. False if the kernel or the file system cannot; then nothing has changed."""
    call = getattr(_libc, "renameat2", None)
    if call is None:
        return False
    if call(one_directory, one, other_directory, other, ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    if ctypes.get_errno() in _LACKING:
        return False
    _fail()


def syncfs(fd: int) -> None:
    """Wait until all data written to the file system of `fd` are on its disk."""
    if _libc.syncfs(fd) != 0:
        _fail()


def _fail() -> NoReturn:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
