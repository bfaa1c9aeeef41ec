"""The level `contained`: the arguments that make bubblewrap a sandbox. The boundary is exactly this list.

Inside are: the system's programs and libraries, our Python, the `sandbox` package and the installed agents, all
read-only; the two kept roots, mounted at `/workspace` and `/agent` for the programs, and again in `/session` for the
bridge, with the files beside them; `/holdfast` with the bridge's own notes; an empty `/tmp` of bounded size; its own
`/proc` and `/dev`. No other file of the host exists inside. The program has uid 1000 of its own user namespace, no
capability, no way to a further namespace, and no network interface but its own loopback.

`/workspace` is a mount, not a symlink, because agents key their memory by the real path of their directory. A mount
stays with its directory: when a restore replaces that directory, `/session` shows the new one and `/workspace` does not
(`Sandbox.mounts_roots`). A file cannot be renamed from one mount to another, so the bridge uses only `/session`.

Not prevented: the bridge has the uid of the agent, so an agent can damage `/holdfast` and `/session`, but only its own
session's. Disk space is not bounded; the size of one file is. Only one program shares the host's network: the git that
clones a repository before anything of a session runs (`Box.network`). A session's programs reach hosts through the
proxy, whose listener is on their own loopback.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sandbox
from sandbox.ports.fleet import AGENTS
from sandbox.system.interpreter import PYTHON

# CODE is a path where nothing is installed. Below a read-only directory of ours, such as a virtual environment in
# /opt, it could not be mounted.
KEPT, WORKSPACE, AGENT, STATE, CODE = "/session", "/workspace", "/agent", "/holdfast", "/holdfast-code"
PROBE_SECONDS = 10.0

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Not all of ssl and pki: a gateway that runs as root could otherwise show its private keys.
_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
_PROC_MASKED = (
    "acpi",
    "fs",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "sched_debug",
    "scsi",
    "sys/fs/binfmt_misc",  # a file system of the host's may be mounted there
    "sysrq-trigger",
    "timer_list",
)
_ETC_OUTBOUND = ("hosts", "resolv.conf")
PASSWD = b"root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/agent:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
GROUP = b"root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"


class NotContained(Exception):
    """Bubblewrap cannot work here; the text says why."""


@dataclass(frozen=True, slots=True)
class Box:
    """The description of one container: the host's directories behind its own, and the descriptors that bwrap reads."""

    kept: Path
    state: Path | None  # the directory of the bridge's notes; None: there is no bridge
    network: str
    hidden: Path  # the data directory: covered if it is below a readable directory
    passwd_fd: int
    group_fd: int
    roots: bool = True  # the roots are directories in `kept`, and are mounted
    seccomp_fd: int | None = None
    status_fd: int | None = None
    tmp_bytes: int = 1024 * 1024 * 1024
    readable: tuple[Path, ...] = ()
    agents: Path | None = None  # the directory of installed agents
    dies_with_us: bool = False


def arguments(bwrap: str, box: Box, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in `box`, with the environment that bwrap itself gets."""
    shared = box.network == "outbound"
    argv = [bwrap, "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    argv += ["--disable-userns", "--new-session", "--hostname", "sandbox"]
    argv += ["--share-net"] if shared else []
    argv += ["--die-with-parent"] if box.dies_with_us else []
    argv += ["--json-status-fd", str(box.status_fd)] if box.status_fd is not None else []
    argv += ["--seccomp", str(box.seccomp_fd)] if box.seccomp_fd is not None else []
    argv += ["--ro-bind", "/usr", "/usr", *_system_directories()]
    for name in (*_ETC, *(_ETC_OUTBOUND if shared else ())):
        # The target of a symlink (resolv.conf often is one) may be at a path that does not exist inside.
        argv += ["--ro-bind-try", os.path.realpath(f"/etc/{name}"), f"/etc/{name}"]
    argv += ["--ro-bind-data", str(box.passwd_fd), "/etc/passwd", "--ro-bind-data", str(box.group_fd), "/etc/group"]
    argv += [*_proc(closed=shared and os.geteuid() == 0), "--dev", "/dev"]
    argv += ["--size", str(box.tmp_bytes), "--tmpfs", "/tmp"]
    argv += ["--size", str(box.tmp_bytes), "--tmpfs", "/dev/shm", "--dir", "/run", "--symlink", "../tmp", "/var/tmp"]
    roots = _python_roots() + [path.absolute() for path in box.readable]
    for root in roots:
        argv += ["--ro-bind", str(root), str(root)]
    hidden = box.hidden.resolve()
    if any(hidden.is_relative_to(root.resolve()) for root in [*roots, Path("/usr")]):
        argv += ["--size", "4096", "--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    argv += ["--ro-bind", str(package()), f"{CODE}/sandbox"]
    argv += ["--ro-bind", str(box.agents), AGENTS] if box.agents else []
    argv += ["--bind", str(box.kept), KEPT]
    argv += ["--bind", str(box.state), STATE] if box.state is not None else []
    for name in (WORKSPACE, AGENT) if box.roots else ():
        argv += ["--bind", f"{box.kept}{name}", name]
    # Last, when every mount point exists: the rest of the root is in memory, and no program may fill it.
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    return [*argv, "--", *command]


def find() -> str:
    """The bwrap program. Raises NotContained."""
    found = shutil.which("bwrap", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin")
    if found is None:
        raise NotContained("the program bwrap is not installed")
    return found


def probe(bwrap: str, argv: Sequence[str], env: Mapping[str, str], descriptors: Sequence[int]) -> None:
    """Run a whole container once. Raises NotContained with bwrap's own message."""
    try:
        done = subprocess.run(
            argv,
            env=env,
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NotContained(f"{bwrap} cannot be run: {exc}") from exc
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise NotContained(f"{bwrap} cannot make a container here: {said or f'exit code {done.returncode}'}")


def _proc(*, closed: bool) -> list[str]:
    """A /proc that shows only this sandbox's processes. Only the processes' own entries are writable: each program
    raises its own oom_score_adj. The rest is read-only, because for the kernel the uid of a gateway that runs as root
    is root inside, too: otherwise a program could set the core pattern. `closed` makes all of it read-only, for such a
    gateway's sandboxes on the host's network, because every process's own `net` shows that network."""
    argv = ["--proc", "/proc"]
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() or entry.is_symlink() or entry.name in _PROC_MASKED:
            continue
        if entry.is_dir() or entry.stat().st_mode & 0o222:
            argv += ["--ro-bind", entry.path, entry.path]
    for name in _PROC_MASKED:
        if os.path.isdir(f"/proc/{name}"):
            argv += ["--size", "4096", "--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
        elif os.path.exists(f"/proc/{name}"):
            argv += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return [*argv, *(["--remount-ro", "/proc"] if closed else [])]


def _system_directories() -> list[str]:
    argv = []
    for name in _SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):
            argv += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            argv += ["--ro-bind", path, path]
    return argv


def _python_roots() -> list[Path]:
    """The directories outside /usr that this interpreter needs. It may be installed in a home directory."""
    wanted = [sys.base_prefix, sys.prefix, os.path.realpath(sys.base_prefix)]
    wanted += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    roots: list[Path] = []
    for path in map(Path, wanted):
        if path.is_dir() and not any(path.is_relative_to(known) for known in [Path("/usr"), *roots]):
            roots.append(path)
    return roots


def package() -> Path:
    """The directory of the `sandbox` package."""
    return Path(sandbox.__file__ or "").resolve().parent


def path() -> str:
    """The PATH inside. It is never the gateway's own: programs there may not exist in a sandbox, or not be meant for
    it."""
    return f"/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:{os.path.dirname(PYTHON)}"
