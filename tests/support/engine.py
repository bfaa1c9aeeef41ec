"""Real container engines with their own directories and sockets: a Docker Engine and a Podman.

    with DockerEngine() as engine:
        ... engine.socket, engine.image

They neither use nor change the machine's own engine. The daemons run in their own mount namespace, so no mount
outlives them. Their containers run in their own control group, so every process of theirs is found and ended.
`whats_missing` says why such an engine is impossible here.
"""

import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.support.waiting import blocking_until

IMAGE = "holdfast-test/busybox:1"
_CGROUPS = Path("/sys/fs/cgroup")
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}


def whats_missing(*programs: str) -> str | None:
    """Why such an engine cannot run here, in one line; None if it can."""
    if os.geteuid() != 0:
        return "a container engine of the tests' own needs root"
    missing = [name for name in ("unshare", "nsenter", "busybox", "runc", *programs) if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: deploy/test-packages.sh names the packages"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"no mount namespaces here: {tried.stderr.strip()}" if tried.returncode else None


class _Engine:
    """Daemons in one mount namespace, one directory and one control group. The directory is removed at the end."""

    programs: ClassVar[tuple[str, ...]] = ()

    @property
    def _prefix(self) -> str:
        return f"hf-{type(self).__name__.lower()}-"

    def __init__(self) -> None:
        self.directory = Path()
        self.image = IMAGE
        self._holder: subprocess.Popen[bytes] | None = None
        self._lock = -1  # held while the directory is in use
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def socket(self) -> Path:
        return self.directory / "engine.sock"

    @property
    def state(self) -> Sequence[Path]:
        """All that the engine writes to the disk."""
        return [self.directory]

    @property
    def cgroup(self) -> str:
        return f"holdfast-test-{self.directory.name}"

    def __enter__(self) -> Self:
        self._remove_stale()
        self.directory = Path(tempfile.mkdtemp(prefix=self._prefix, dir="/tmp"))
        self.directory.chmod(0o711)
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._hold()
            self.start()
            self.load(IMAGE, busybox())
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def start(self) -> None:
        """Start the daemons that do not run. Raises RuntimeError with the end of the log if one does not come up."""
        raise NotImplementedError

    def load(self, image: str, root: bytes, *changes: str) -> None:
        """Make `image` of the tar `root`; `changes` are lines of a Dockerfile."""
        raise NotImplementedError

    def client(self, *words: str, stdin: bytes = b"") -> str:
        """The output of the engine's own program."""
        raise NotImplementedError

    def kill(self) -> None:
        """SIGKILL to the daemon that answers the API; its containers go on."""
        self._end("engine", signal.SIGKILL)

    def pause(self) -> None:
        self._daemons["engine"].send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._daemons["engine"].send_signal(signal.SIGCONT)

    def processes(self) -> set[int]:
        """Every process in its control groups."""
        found: set[int] = set()
        for group in self._cgroups():
            with suppress(OSError):
                found.update(int(line) for line in (group / "cgroup.procs").read_text().split())
        return found

    def mounts(self) -> list[str]:
        """The mounts below its directory, as its daemons see them."""
        assert self._holder is not None
        lines = Path(f"/proc/{self._holder.pid}/mountinfo").read_text().splitlines()
        return [place for line in lines if (place := line.split()[4]).startswith(str(self.directory))]

    def _hold(self) -> None:
        """A mount namespace in which the machine's own settings of engines do not exist."""
        hidden = [path for path in ("/run", "/etc/docker", "/etc/cni", "/var/lib/cni") if Path(path).is_dir()]
        script = "".join(f"mount -t tmpfs none {path} && " for path in hidden) + "exec sleep infinity"
        # Should the tests be killed, nothing of this may stay.
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "slave", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
        )
        holder = Path(f"/proc/{self._holder.pid}")
        blocking_until(lambda: (holder / "cmdline").read_bytes().startswith(b"sleep"), "a mount namespace")

    def _run(self, name: str, argv: Sequence[str], **environ: str) -> None:
        assert self._holder is not None
        inside = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "setpriv", "--pdeathsig", "KILL"]
        with (self.directory / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [*inside, *argv],
                env=_ENVIRONMENT | environ,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _runs(self, name: str) -> bool:
        return name in self._daemons and self._daemons[name].poll() is None

    def _end(self, name: str, number: signal.Signals) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.send_signal(signal.SIGCONT)
            daemon.send_signal(number)
            daemon.wait()

    def _until_answers(self, name: str, *words: str) -> None:
        def answers() -> bool:
            if not self._runs(name):
                raise RuntimeError(self._log(name))
            return subprocess.run(words, env=_ENVIRONMENT, capture_output=True, check=False).returncode == 0

        blocking_until(answers, lambda: self._log(name))

    def _log(self, name: str) -> str:
        return f"{name}: {(self.directory / f'{name}.log').read_text(errors='replace')[-2000:]}"

    def _cgroups(self) -> list[Path]:
        """Its groups in every hierarchy, each with those below it."""
        tops = [top for pattern in self._groups() for depth in ("", "*/") for top in _CGROUPS.glob(depth + pattern)]
        return [path for top in tops for path in (top, *top.rglob("*/"))]

    def _groups(self) -> list[str]:
        return [self.cgroup]

    def _relatives(self) -> set[int]:
        """Processes outside the groups whose command names the directory: shims and monitors."""
        found = set()
        for entry in os.listdir("/proc"):
            with suppress(OSError, ValueError):
                if str(self.directory).encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.add(int(entry))
        return found - {os.getpid()}

    def _remove_stale(self) -> None:
        """Remove the leftovers of killed test runs: their daemons ended with them, containers did not."""
        for path in Path("/tmp").glob(f"{self._prefix}*/lock"):
            with suppress(OSError):
                lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    stale = type(self)()
                    stale.directory = path.parent
                    stale._remove()
                finally:
                    os.close(lock)

    def _remove(self) -> None:
        for name in reversed(list(self._daemons)):
            self._end(name, signal.SIGKILL)

        def nobody_is_left() -> bool:
            left = self.processes() | self._relatives()
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        blocking_until(nobody_is_left, "the end of the engine's processes")
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
        for group in sorted(self._cgroups(), reverse=True):
            group.rmdir()
        for shared in _CGROUPS.glob("*/libpod_parent"):
            with suppress(OSError):  # another Podman has something in it
                shared.rmdir()
        if self._lock >= 0:
            os.close(self._lock)
        # The namespace, and every mount in it, goes with its last process; the kernel may take a moment.
        blocking_until(self._is_gone, f"the removal of {self.directory}")

    def _is_gone(self) -> bool:
        with suppress(OSError):
            shutil.rmtree(self.directory)
        return not self.directory.exists()


class DockerEngine(_Engine):
    """containerd and dockerd, two processes as on a real host. No network, no bridge, no firewall rules."""

    programs = ("containerd", "dockerd", "docker")

    def __init__(self, *, live_restore: bool = True, data: Path | None = None, runtimes: object = None) -> None:
        """`data` is the directory of its images; None: in its own directory, which is removed. `runtimes` are further
        ones, in the form of its settings."""
        super().__init__()
        self._live_restore = live_restore
        self._runtimes = runtimes or {}
        self._data = data

    def start(self) -> None:
        at = self.directory
        containerd = at / "containerd.sock"
        if not self._runs("containerd"):
            (at / "containerd.toml").write_text(
                f'version = 2\nroot = "{at}/containerd"\nstate = "{at}/containerd-state"\n'
                'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
                f'[grpc]\naddress = "{containerd}"\n[ttrpc]\naddress = "{containerd}.ttrpc"\n'
            )
            self._run("containerd", ["containerd", "--config", str(at / "containerd.toml")])
            self._until_answers("containerd", "ctr", "-a", str(containerd), "version")
        if not self._runs("engine"):
            for stale in ("docker.pid", "engine.sock"):  # of a daemon that was killed
                (at / stale).unlink(missing_ok=True)
            settings = {"live-restore": self._live_restore, "bridge": "none", "iptables": False, "ip6tables": False}
            (at / "daemon.json").write_text(json.dumps(settings | {"runtimes": self._runtimes}))
            where = [
                "--data-root",
                str(self._data or at / "data"),
                "--exec-root",
                str(at / "exec"),
                "--pidfile",
                f"{at}/docker.pid",
            ]
            where += ["--containerd", str(containerd), "--cgroup-parent", f"/{self.cgroup}"]
            told = ["--config-file", str(at / "daemon.json"), "--host", f"unix://{self.socket}"]
            self._run("engine", ["dockerd", *told, *where])
            self._until_answers("engine", "docker", "--host", f"unix://{self.socket}", "version")

    def kill_containerd(self) -> None:
        self._end("containerd", signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end of the daemon, as of an upgrade."""
        self._end("engine", signal.SIGTERM)

    def load(self, image: str, root: bytes, *changes: str) -> None:
        words = [word for change in changes for word in ("--change", change)]
        self.client("import", *words, "-", image, stdin=root)

    def client(self, *words: str, stdin: bytes = b"") -> str:
        argv = ["docker", "--host", f"unix://{self.socket}", *words]
        done = subprocess.run(argv, env=_ENVIRONMENT, input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode()


class PodmanEngine(_Engine):
    """Podman's service, which speaks Docker's API."""

    programs = ("podman", "conmon")

    def __init__(self, registries: Sequence[str] = ()) -> None:
        """`registries` use plain HTTP: Docker accepts that from loopback, Podman needs a setting."""
        super().__init__()
        self._registries = registries

    def start(self) -> None:
        if self._runs("engine"):
            return
        at = self.directory
        plain = "".join(f'[[registry]]\nlocation = "{each}"\ninsecure = true\n' for each in self._registries)
        (at / "registries.conf").write_text(plain)
        (at / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=20000:20000","nproc=30000:30000"]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        self.socket.unlink(missing_ok=True)
        self._run("engine", [*self._podman, "system", "service", "--time=0", f"unix://{self.socket}"], **self._environ)
        blocking_until(self.socket.exists, "Podman's socket")

    def _groups(self) -> list[str]:
        kept = self.directory / "data" / "overlay-containers"
        return [f"libpod_parent/libpod-{path.name}" for path in kept.glob("?" * 64)]

    @property
    def _podman(self) -> list[str]:
        at = self.directory
        return ["podman", "--root", f"{at}/data", "--runroot", f"{at}/run", "--tmpdir", f"{at}/tmp"]

    @property
    def _environ(self) -> dict[str, str]:
        at = self.directory
        return {
            "CONTAINERS_CONF": str(at / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(at / "registries.conf"),
        }

    def load(self, image: str, root: bytes, *changes: str) -> None:
        words = [word for change in changes for word in ("--change", change)]
        self.client("import", *words, "-", image, stdin=root)

    def client(self, *words: str, stdin: bytes = b"") -> str:
        assert self._holder is not None
        inside = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]
        done = subprocess.run(
            [*inside, *self._podman, *words],
            env=_ENVIRONMENT | self._environ,
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode()


def busybox(more: Mapping[str, bytes] | None = None, /, **files: str) -> bytes:
    """The root of an image with a static shell and nothing else: no libc, no Python, no /etc; and with these files."""
    program = Path(shutil.which("busybox") or "")
    named = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    texts = {name: text.encode() for name, text in files.items()}
    return root_of({"bin/busybox": program.read_bytes(), **(more or {}), **texts}, named)


def root_of(files: dict[str, bytes], applets: Sequence[str] = ()) -> bytes:
    """A tar of these files, with links to busybox."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
        for name in applets:
            if name != "busybox":
                member = tarfile.TarInfo(f"bin/{name}")
                member.type, member.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(member)
    return whole.getvalue()
