"""Runs inside a sandbox and tries to get out: `python attempts.py '<targets as JSON>'`, standard library only.

Each attempt runs in a process of its own and either raises OSError (it was held back) or returns what it got hold of.
None does harm where it succeeds: system calls get arguments that fail *after* the permission check, files are opened
and not written, and only processes and sockets of the test are aimed at. Prints {name: what was got, or null}.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import pty
import resource
import signal
import socket
import stat
import struct
import sys
import sysconfig
import termios
from collections.abc import Callable
from typing import Any

TARGETS: dict[str, Any] = {}
BRIDGE = os.getppid()
ARM = platform.machine() == "aarch64"
HELD = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS, errno.EAFNOSUPPORT)
NEWNS, NEWUSER, NEWNET = 0x00020000, 0x10000000, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
Attempt = Callable[[], object]
ATTEMPTS: dict[str, Attempt] = {}


def attempt(name: str) -> Callable[[Attempt], Attempt]:
    def keep(function: Attempt) -> Attempt:
        assert name not in ATTEMPTS
        ATTEMPTS[name] = function
        return function

    return keep


def syscall(x86: int, arm: int, *arguments: object) -> int:
    """A system call; -1 raises."""
    result = int(libc.syscall(arm if ARM else x86, *arguments))
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def gets_past_the_check(call: Callable[[], object]) -> object:
    """For calls with arguments that make no sense: any error but a refusal shows that they would be allowed."""
    try:
        return call() or True
    except OSError as exc:
        if exc.errno in HELD:
            raise
        return f"refused only for its arguments: {exc}"


def contains_canary(path: str) -> object:
    with open(path, "rb") as file:
        return str(TARGETS["canary"]).encode() in file.read(1 << 20)


def can_create_in(directory: str) -> object:
    """An unnamed file: nothing is left of it."""
    os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600))
    return directory


def can_open_for_writing(path: str) -> object:
    os.close(os.open(path, os.O_WRONLY))
    return path


def connects(family: int, address: Any) -> object:
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        client.connect(address)
    return str(address)


def has_route(address: str) -> object:
    """Connecting a datagram socket sends nothing; it fails without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((address, 80))
    return address


def content(path: str) -> object:
    with open(path, "rb") as file:
        return file.read(4096)


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


# Files of the gateway and of other sessions.
attempt("read a secret of the gateway")(lambda: contains_canary(TARGETS["secret"]))
attempt("read the gateway's note of this bridge")(lambda: content(TARGETS["note"]))
attempt("read another session's workspace")(lambda: contains_canary(TARGETS["other_file"]))
attempt("write into another session's workspace")(lambda: can_create_in(os.path.dirname(TARGETS["other_file"])))
attempt("list the data directory")(lambda: os.listdir(TARGETS["data"]))
attempt("read a secret through /proc/1/root")(lambda: contains_canary("/proc/1/root" + TARGETS["secret"]))
attempt("read a secret through a process's root")(
    lambda: contains_canary(f"/proc/{TARGETS['pid']}/root" + TARGETS["secret"])
)
attempt("read a secret through a process's directory")(
    lambda: contains_canary(f"/proc/{TARGETS['pid']}/cwd/{os.path.basename(TARGETS['secret'])}")
)
attempt("see the sandbox's directory above the kept one")(lambda: "bridge.json" in os.listdir("../..") or None)
attempt("see the sandbox's directory beside the kept one")(lambda: "bridge.json" in os.listdir("..") or None)
attempt("put another socket in the bridge's place")(lambda: can_create_in(os.path.dirname(TARGETS["socket"])))
attempt("read the host's password hashes")(lambda: os.access("/etc/shadow", os.R_OK))
attempt("see the host's logs")(lambda: os.listdir("/var/log"))
attempt("see the host's home directories")(lambda: os.listdir("/home"))
attempt("see the host's run directory")(lambda: os.listdir("/run"))
attempt("see the host's keys")(lambda: os.listdir("/etc/ssl/private") is not None)


@attempt("read a secret through a symbolic link in the workspace")
def _symlink() -> object:
    os.symlink(TARGETS["secret"], "escape-symlink")
    try:
        return contains_canary("escape-symlink")
    finally:
        os.unlink("escape-symlink")


@attempt("read a secret through a hard link in the workspace")
def _hard_link() -> object:
    os.link(TARGETS["secret"], "escape-hardlink")
    try:
        return contains_canary("escape-hardlink")
    finally:
        os.unlink("escape-hardlink")


@attempt("open a file of the host through what the parent holds open")
def _parents_descriptors() -> object:
    folder = f"/proc/{parent_of(BRIDGE)}/fd"
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            target = os.readlink(f"{folder}/{name}")
            if target.startswith(TARGETS["data"]):
                return target
    return None


# The system itself.
attempt("change programs")(lambda: can_create_in("/usr/bin"))
attempt("change libraries")(lambda: can_create_in("/usr/lib"))
attempt("change the system's settings")(lambda: can_create_in("/etc"))
attempt("change our Python")(lambda: can_create_in(sysconfig.get_path("purelib")))
attempt("change the bridge's code")(lambda: can_create_in(TARGETS["code"]))
attempt("fill the root")(lambda: can_create_in("/"))
attempt("fill /dev")(lambda: can_create_in("/dev"))
attempt("set the core pattern")(lambda: can_open_for_writing("/proc/sys/kernel/core_pattern"))
attempt("set the path of modprobe")(lambda: can_open_for_writing("/proc/sys/kernel/modprobe"))
attempt("pull the system request key")(lambda: can_open_for_writing("/proc/sysrq-trigger"))
attempt("allow user namespaces again")(lambda: can_open_for_writing("/proc/sys/user/max_user_namespaces"))
attempt("reach /sys")(lambda: os.listdir("/sys/kernel"))
attempt("reach the control groups")(lambda: os.listdir("/sys/fs/cgroup"))
attempt("see the host's keys in the kernel")(lambda: content("/proc/keys"))
attempt("read the kernel's log")(lambda: syscall(103, 116, 10, None, 0))
attempt("open the kernel's memory")(lambda: os.close(os.open("/dev/mem", os.O_RDONLY)) or True)
attempt("open a device of the host")(
    lambda: sorted(set(os.listdir("/dev")) - {"null", "zero", "full", "random", "urandom", "tty", "console", "core"}
                   - {"fd", "stdin", "stdout", "stderr", "pts", "ptmx", "shm"})
)  # fmt: skip


@attempt("find a switch of the kernel that can be turned")
def _switches() -> object:
    devices = {os.stat("/dev/null").st_rdev}  # what hides a file may be written to
    for path, folders, names in os.walk("/proc"):
        if path == "/proc":
            folders[:] = [name for name in folders if not name.isdigit()]  # a process's own are not the kernel's
        for name in names:
            if os.access(f"{path}/{name}", os.W_OK) and os.stat(f"{path}/{name}").st_rdev not in devices:
                return f"{path}/{name}"
    return None


@attempt("make a device")
def _mknod() -> object:
    os.mknod("escape-device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.unlink("escape-device")
    return True


# Setuid and setgid programs: left on the host's disk, they are root's if the gateway is.
def with_set_id(make: Callable[[str], object], name: str = "escape-set-id") -> object:
    """`make` gives a file of this name such a bit; what is left of it is removed."""
    try:
        make(name)
        mode = os.stat(name).st_mode & 0o6000
        if not mode:
            raise OSError(errno.EPERM, "the bits are not there")
        return oct(mode)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def made(name: str) -> str:
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o700))
    return name


def change_descriptor(name: str) -> None:
    with open(made(name), "rb") as file:
        os.fchmod(file.fileno(), 0o4755)


def make_unnamed(name: str) -> None:
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755)
    syscall(265, 37, -100, f"/proc/self/fd/{fd}".encode(), -100, name.encode(), 0x400)  # linkat, AT_SYMLINK_FOLLOW


def open_how(name: str) -> None:
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    syscall(437, 437, -100, name.encode(), how, len(how))


attempt("make a program setuid")(lambda: with_set_id(lambda name: os.chmod(made(name), 0o4755)))
attempt("make a program setgid")(lambda: with_set_id(lambda name: os.chmod(made(name), 0o2755)))
attempt("make an open program setuid")(lambda: with_set_id(change_descriptor))
attempt("make a program setuid by fchmodat")(
    lambda: with_set_id(lambda name: syscall(268, 53, -100, made(name).encode(), 0o4755))
)
attempt("make a program setuid by fchmodat2")(
    lambda: with_set_id(lambda name: syscall(452, 452, -100, made(name).encode(), 0o4755, 0))
)
attempt("open a new setuid file")(lambda: with_set_id(lambda name: os.open(name, os.O_CREAT | os.O_WRONLY, 0o6755)))
attempt("open a new setuid file without a name")(lambda: with_set_id(make_unnamed))
attempt("open a new setuid file by openat2")(lambda: with_set_id(open_how))
attempt("make a setuid node")(lambda: with_set_id(lambda name: os.mknod(name, stat.S_IFREG | 0o4755)))


# Namespaces, mounts, privileges.
attempt("mount")(lambda: gets_past_the_check(lambda: syscall(165, 40, b"none", b".", b"no-such-fs", 0, None)))
attempt("unmount")(lambda: gets_past_the_check(lambda: syscall(166, 39, b".", 0)))
attempt("pivot the root")(lambda: gets_past_the_check(lambda: syscall(155, 41, b".", b".")))
attempt("open a mount tree")(lambda: syscall(428, 428, -100, b".", 1) > 0)
attempt("open a file system")(lambda: syscall(430, 430, b"tmpfs", 0) > 0)
attempt("change the root")(lambda: os.chroot(".") or True)
attempt("make a user namespace")(lambda: syscall(272, 97, NEWUSER) == 0)
attempt("make a mount namespace")(lambda: syscall(272, 97, NEWNS) == 0)
attempt("make a network namespace")(lambda: syscall(272, 97, NEWNET) == 0)
attempt("enter another process's namespace")(
    lambda: syscall(308, 268, os.open(f"/proc/{TARGETS['pid']}/ns/ipc", os.O_RDONLY), 0) == 0
)
attempt("become root")(lambda: os.setresuid(0, 0, 0) or True)
attempt("become another group")(lambda: os.setgroups([0]) or True)
attempt("gain privileges by running a setuid program")(lambda: libc.prctl(39, 0, 0, 0, 0) == 0)
attempt("rename the host")(lambda: socket.sethostname(socket.gethostname()) or True)
attempt("learn the host's name")(lambda: socket.gethostname() == TARGETS["hostname"])
attempt("raise a limit")(
    lambda: (
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[0], _hard_limit() + 1))
        or True
    )
)
attempt("run before others")(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5) or True)
attempt("dump core")(lambda: resource.getrlimit(resource.RLIMIT_CORE)[1] != 0)


def _hard_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@attempt("clone into a user namespace")
def _clone() -> object:
    pid = syscall(56, 220, NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


@attempt("hold a capability")
def _capabilities() -> object:
    with open("/proc/self/status") as file:
        held = {line.split()[0]: line.split()[1] for line in file if line.startswith("Cap")}
    return {name: mask for name, mask in held.items() if int(mask, 16)}


@attempt("escape being killed for memory")
def _oom() -> object:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-500")
    return True


# Kernel interfaces that escapes are made of.
attempt("load a BPF program")(lambda: gets_past_the_check(lambda: syscall(321, 280, 5, None, 0)))
attempt("watch performance counters")(lambda: gets_past_the_check(lambda: syscall(298, 241, None, 0, -1, -1, 0)))
attempt("load a kernel module")(lambda: gets_past_the_check(lambda: syscall(175, 105, None, 0, b"")))
attempt("swap")(lambda: gets_past_the_check(lambda: syscall(167, 224, b"no-such-file", 0)))
attempt("share a key ring")(lambda: syscall(250, 219, 0, -3, 0))
attempt("handle page faults")(lambda: syscall(323, 282, 0) > 0)
attempt("set up an io_uring")(lambda: gets_past_the_check(lambda: syscall(425, 425, 1, None)))
attempt("watch a file system")(lambda: syscall(300, 262, 0, 0) > 0)


@attempt("open a file by its handle")
def _handle() -> object:
    handle = bytearray(struct.pack("Ii", 128, 0) + bytes(128))
    buffer = (ctypes.c_char * len(handle)).from_buffer(handle)
    syscall(303, 264, -100, b".", buffer, ctypes.byref(ctypes.c_int()), 0)
    return syscall(304, 265, -100, buffer, os.O_RDONLY) > 0


@attempt("type into a terminal")
def _tiocsti() -> object:
    os.setsid()
    _, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    fcntl.ioctl(terminal, termios.TIOCSTI, b"x")
    return True


# Processes.
attempt("see a process of the host")(lambda: contains_canary(f"/proc/{TARGETS['pid']}/cmdline"))
attempt("read a process's environment")(lambda: contains_canary(f"/proc/{TARGETS['pid']}/environ"))
attempt("signal a process of the host")(
    lambda: contains_canary(f"/proc/{TARGETS['pid']}/cmdline") and (os.kill(TARGETS["pid"], 0) or True)
)
attempt("trace a process of the host")(lambda: syscall(101, 117, 0x4206, TARGETS["pid"], 0, 0) == 0)
attempt("hold on to a process of the host")(lambda: syscall(434, 434, TARGETS["pid"], 0) > 0)
attempt("find shared memory of the host")(lambda: syscall(29, 194, TARGETS["shm_key"], 0, 0) >= 0)
attempt("trace the bridge")(lambda: syscall(101, 117, 0x4206, BRIDGE, 0, 0) == 0)
attempt("read the bridge's environment")(lambda: content(f"/proc/{BRIDGE}/environ"))
attempt("open the bridge's memory")(lambda: os.close(os.open(f"/proc/{BRIDGE}/mem", os.O_RDONLY)) or True)
attempt("see what the bridge holds open")(lambda: os.readlink(f"/proc/{BRIDGE}/fd/2"))
attempt("open the bridge's log")(lambda: os.close(os.open(f"/proc/{BRIDGE}/fd/2", os.O_WRONLY)) or True)

# The network.
attempt("reach a server on the host's loopback")(lambda: connects(socket.AF_INET, ("127.0.0.1", TARGETS["port"])))
attempt("reach an abstract socket of the host")(lambda: connects(socket.AF_UNIX, "\0" + TARGETS["abstract"]))
attempt("reach a socket file of the host")(lambda: connects(socket.AF_UNIX, TARGETS["socket_file"]))
attempt("reach another session's bridge")(lambda: connects(socket.AF_UNIX, TARGETS["other_socket"]))
attempt("reach the metadata service")(lambda: has_route("169.254.169.254"))
attempt("reach the internet")(lambda: has_route("192.0.2.1"))
attempt("see the host's interfaces")(lambda: [name for _, name in socket.if_nameindex() if name != "lo"])
attempt("open a raw socket")(
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close() or True
)
attempt("open a packet socket")(lambda: socket.socket(17, socket.SOCK_RAW).close() or True)
attempt("open a socket to the hypervisor")(lambda: socket.socket(40, socket.SOCK_STREAM).close() or True)
attempt("open a socket to the kernel's ciphers")(lambda: socket.socket(38, socket.SOCK_SEQPACKET).close() or True)


def run(function: Attempt) -> object:
    """What the attempt got, told by a child through a pipe; None if it was held back, crashed or hung."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        got: object = None
        with contextlib.suppress(OSError, KeyError):
            got = function()
        os.write(writing, repr(got)[:200].encode() if got else b"")
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return told.decode(errors="replace") or None


if __name__ == "__main__":
    TARGETS.update(json.loads(sys.argv[1]))
    results = {name: run(function) for name, function in ATTEMPTS.items()}
    sys.stdout.write(json.dumps(results))
