"""Checks of an image and an engine before a container is made. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.ports.images import read_reference
from sandbox.providers.container.engine_answers import BadAnswer, inner, texts

ROOT_USER, INNER_UID = 0, 1000
OWN = "holdfast-sandbox"  # the image of deploy/sandbox.Dockerfile; the default of sessions
_LOADERS = {
    ("glibc", "x86_64"): ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-x86-64.so.2"),
    ("glibc", "aarch64"): ("/lib/ld-linux-aarch64.so.1",),
    ("musl", "x86_64"): ("/lib/ld-musl-x86_64.so.1",),
    ("musl", "aarch64"): ("/lib/ld-musl-aarch64.so.1",),
}
_HOST_SOCKETS = ("--host-uds=open", "--host-uds=all", "--fsgofer-host-uds")
_SAME = {"x86_64": "amd64", "aarch64": "arm64"}


class Unusable(Exception):
    """Such a container could not run. The text tells the user what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    id: str
    env: Mapping[str, str]
    cpu: str
    digest: str = ""  # in a registry, name and all; "": no registry is known to have it


@dataclass(frozen=True, slots=True)
class ContainerUser:
    """The user of a container: `uid` inside, `owner` outside. The kept roots belong to the owner. `given`: they must
    be given to that owner first, because the gateway is root and makes files as root."""

    uid: int
    gid: int
    owner: int
    owner_group: int
    given: bool

    @property
    def said(self) -> str:
        return f"{self.uid}:{self.gid}"


def image_of(inspected: Mapping[str, Any], named: str = "") -> Image:
    """Raises BadAnswer."""
    pairs = (each.partition("=") for each in texts(inner(inspected, "Config").get("Env")))
    env = {name: value for name, found, value in pairs if name and found}
    digests = texts(inspected.get("RepoDigests"))
    return Image(str(inspected["Id"]), env, str(inspected.get("Architecture") or ""), _digest_of(named, digests))


def _digest_of(named: str, digests: Sequence[str]) -> str:
    """Under which the registry of that name has it: an image may be in several."""
    try:
        wanted = read_reference(named).repository
        return next((each for each in digests if read_reference(each).repository == wanted), "")
    except ValueError:
        return ""


def no_image(name: str) -> str:
    """What to do about an image that the engine does not have."""
    if name in (OWN, f"{OWN}:latest"):
        return (
            f"there is no image {OWN} on the container engine: build it (docker build -t {OWN} -f "
            "deploy/sandbox.Dockerfile deploy), or name another in HOLDFAST_DOCKER_IMAGE"
        )
    return f"there is no image {name} on the container engine: pull or build it there first"


def check_image(image: Image, named: str, machine: str) -> None:
    """Raises Unusable unless its programs run on this `machine`."""
    host = cpu_name(machine)
    if image.cpu and image.cpu != host:
        raise Unusable(f"the image {named} is for {image.cpu}, and this host is {host}: use an image for it")


def loaders(libc: str, machine: str) -> tuple[str, ...]:
    """Where a program that is linked to `libc` looks for its loader."""
    return _LOADERS.get((libc, machine), ())


def no_libc(named: str, libc: str) -> str:
    """For the user: why an agent cannot run in the image of that name."""
    kind = "Debian, Ubuntu or Fedora" if libc == "glibc" else "Alpine"
    other = "or an agent that needs none, such as codex"
    return f"this agent cannot run in the image {named}, which has no {libc}: use an image of {kind}, {other}"


def check_engine(info: Mapping[str, Any], machine: str) -> None:
    """Raises Unusable unless the engine runs on this kind of machine: the kit is of our own programs."""
    theirs = str(info.get("Architecture") or machine)
    if cpu_name(theirs) != cpu_name(machine):
        raise Unusable(f"the container engine runs on {theirs}, and the gateway on {machine}: it must be of this host")
    if str(info.get("OSType") or "linux") != "linux":
        raise Unusable("the container engine runs no Linux containers")


def is_gvisor(runtime: str | None) -> bool:
    """By its name, as the engine knows it."""
    return runtime is not None and "runsc" in runtime


def check_runtime(info: Mapping[str, Any], asked: str | None) -> None:
    """Raises Unusable for a runtime in which no bridge could be reached. `asked`: None for the engine's own default."""
    name, known = asked or str(info.get("DefaultRuntime") or ""), info.get("Runtimes")
    entry = known.get(name) if isinstance(known, dict) else None
    told: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    if not is_gvisor(name):
        if "runsc" in str(told.get("path") or ""):
            raise Unusable(f"the runtime {name} is gVisor: give it a name with runsc in it, and set that")
        return
    if asked is None:
        raise Unusable(f"the engine's own runtime is gVisor: set HOLDFAST_DOCKER_RUNTIME={name}")
    if name.startswith("io.containerd."):
        return  # what it is told stands in a file of its own
    if entry is None:
        raise Unusable(f"the container engine has no runtime {name}: add it there, or unset HOLDFAST_DOCKER_RUNTIME")
    args = told.get("runtimeArgs")
    if not isinstance(args, list) or not any(flag in args for flag in _HOST_SOCKETS):
        raise Unusable(
            f"the runtime {name} lets no sandbox connect to a socket of the host, and by one its bridge gets what it "
            'starts with: add "--host-uds=open" to its runtimeArgs ("--fsgofer-host-uds" before 2023)'
        )


def user_of(info: Mapping[str, Any], uid: int, gid: int, *, in_container: bool) -> ContainerUser:
    """Whom containers run as, for a gateway that runs as `uid`: always one that is not root outside. A gateway that is
    not root makes everything as itself, so inside it is the same user. One that is `in_container` of that engine counts
    users as its other containers do. Raises Unusable, BadAnswer."""
    options = [] if in_container else texts(info.get("SecurityOptions"))
    if any("rootless" in option for option in options):
        if uid == ROOT_USER:
            raise Unusable("the container engine is rootless and the gateway is root: run both as the same user")
        return ContainerUser(0, 0, uid, gid, given=False)  # root inside is that user outside
    if any("name=userns" in option for option in options):
        if uid != ROOT_USER:
            raise Unusable(
                "the container engine remaps users (userns-remap): the gateway must be root to give them their files"
            )
        first, first_group = _remapped(str(info.get("DockerRootDir") or ""))
        return ContainerUser(INNER_UID, INNER_UID, first + INNER_UID, first_group + INNER_UID, given=True)
    if uid == ROOT_USER:
        return ContainerUser(INNER_UID, INNER_UID, INNER_UID, INNER_UID, given=True)
    return ContainerUser(uid, gid, uid, gid, given=False)


def accounts(passwd: bytes, user: ContainerUser, home: str) -> bytes:
    """The image's /etc/passwd with a line for the container's user: without one `whoami` and git fail."""
    lines = [line for line in passwd.splitlines() if line.count(b":") == 6]
    if not any(line.split(b":")[2] == str(user.uid).encode() for line in lines):
        taken = {line.split(b":")[0] for line in lines}
        name = b"agent" if b"agent" not in taken else b"holdfast-agent"
        lines.append(b"%b:x:%d:%d::%b:/bin/sh" % (name, user.uid, user.gid, home.encode()))
    return b"".join(line + b"\n" for line in lines)


def _remapped(root: str) -> tuple[int, int]:
    """The first uid and gid of the containers: the engine keeps its data in a directory named after them."""
    uid, dot, gid = root.rpartition("/")[2].partition(".")
    if not (dot and uid.isdecimal() and gid.isdecimal()):
        raise BadAnswer("it does not report which users it remaps to")
    return int(uid), int(gid)


def cpu_name(machine: str) -> str:
    """As images name it."""
    return _SAME.get(machine, machine)
