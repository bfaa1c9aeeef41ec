"""A container engine's facts as findings of `holdfast doctor`: each in words, with advice. Pure.

`info` and `version` are the engine's answers to /info and /version. They are read carefully: an engine may leave out
any member.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.cli.commands.doctor_store import Finding
from sandbox.providers.container.engine_answers import BadAnswer, negotiated, texts
from sandbox.providers.container.image import Unusable, check_engine, check_runtime, cpu_name, user_of

DAEMON_JSON = "/etc/docker/daemon.json"
# The limits that an engine can hold a container to, by our setting.
_HOLDS = {"MemoryLimit": "MEMORY", "SwapLimit": "MEMORY", "CpuCfsQuota": "CPUS", "PidsLimit": "PIDS"}
_BOOT = "boot the kernel with cgroup_enable=memory swapaccount=1; a rootless engine needs control groups v2, delegated"


def is_podman(version: Mapping[str, Any]) -> bool:
    return any("Podman" in name for name in _components(version))


def of_engine(address: str, version: Mapping[str, Any], info: Mapping[str, Any], machine: str) -> Finding:
    """Which engine that is, and whether the gateway can use it from this `machine`."""
    name = "Podman" if is_podman(version) else "Docker Engine"
    told = f"{name} {version.get('Version', '?')} at {address}"
    try:
        spoken = negotiated(version).removeprefix("/v")
        check_engine(info, machine)
    except (BadAnswer, Unusable) as exc:
        return Finding("engine", "fail", f"{told}: {exc}", "set HOLDFAST_DOCKER to an engine of this host")
    kind = f"{info.get('OSType') or 'linux'}/{info.get('Architecture') or machine}"
    groups = f", control groups v{info['CgroupVersion']}" if info.get("CgroupVersion") else ""
    return Finding("engine", "ok", f"{told}, API {spoken}, {kind}{groups}")


def of_restarts(version: Mapping[str, Any], info: Mapping[str, Any]) -> Finding:
    """Whether sessions outlive their engine's daemon."""
    if is_podman(version):
        return Finding("restarts", "ok", "containers of Podman have no daemon to end with")
    if info.get("LiveRestoreEnabled") is True:
        return Finding("restarts", "ok", "live-restore is on: sessions go on while the daemon restarts")
    told = "live-restore is off: when the daemon restarts, Docker ends every session's sandbox"
    return Finding("restarts", "warn", told, f'set "live-restore": true in {DAEMON_JSON}, and reload the daemon')


def of_limits(info: Mapping[str, Any], warnings: Sequence[str]) -> Finding:
    """Whether containers are held to limits; `warnings` are those of a container that was tried."""
    missing = dict.fromkeys(f"HOLDFAST_LIMIT_{name}" for said, name in _HOLDS.items() if info.get(said) is False)
    problems = [f"the engine does not hold containers to {', '.join(missing)}"] if missing else []
    problems += warnings
    if problems:
        return Finding("limits", "warn", "; ".join(problems), _BOOT)
    return Finding("limits", "ok", "the engine holds containers to memory, processors and processes")


def of_runtime(asked: str, version: Mapping[str, Any], info: Mapping[str, Any]) -> Finding:
    """Whether containers run in the runtime that settings name ("": the engine's default), and whether a bridge can be
    reached in it."""
    own = str(info.get("DefaultRuntime") or "runc")
    if is_podman(version):
        if asked in ("", own):
            return Finding("runtime", "ok", f"{own}, the engine's own")
        told = f"HOLDFAST_DOCKER_RUNTIME={asked}: Podman takes no runtime from outside, containers run in {own}"
        return Finding("runtime", "fail", told, f'set runtime = "{asked}" below [engine] in containers.conf')
    known, name = _runtimes(info), asked or own
    if asked and asked not in known and not asked.startswith("io.containerd."):
        told = f"HOLDFAST_DOCKER_RUNTIME={asked}: the engine knows {', '.join(sorted(known)) or 'none'}"
        return Finding("runtime", "fail", told, f'add it to "runtimes" in {DAEMON_JSON} and restart it, or unset it')
    try:
        check_runtime(info, asked or None)
    except Unusable as exc:
        return Finding("runtime", "fail", str(exc), "see the reason; unset it if the engine's own default is another")
    return Finding("runtime", "ok", name if asked else f"{name}, the engine's own")


def of_users(
    version: Mapping[str, Any], info: Mapping[str, Any], uid: int, gid: int, *, in_container: bool = False
) -> Finding:
    """The user that containers run as, for a gateway that runs as `uid`, maybe in a container itself."""
    try:
        options = texts(info.get("SecurityOptions"))
        user = user_of(info, uid, gid, in_container=in_container)
    except (Unusable, BadAnswer) as exc:
        return Finding("users", "fail", str(exc), "see the reason; HOLDFAST_DOCKER names the engine")
    if not any("name=seccomp" in option for option in options):
        told = "the engine filters no system calls (seccomp): the bridge's own filter is all there is"
        return Finding("users", "warn", told, "use an engine and a kernel with seccomp")
    inside, outside = user.uid, user.owner
    if inside != outside:
        return Finding("users", "ok", f"uid {inside} inside is uid {outside} outside")
    apart = f'"userns-remap": "default" in {DAEMON_JSON} would make them two; it hides the images that are there'
    advice = "" if uid or is_podman(version) else apart
    return Finding("users", "ok", f"uid {inside} inside is {outside} outside, too; it has no capabilities", advice)


def of_registry(name: str, told: str, advice: str, said: Mapping[str, Any], machine: str) -> Finding:
    """For an image that is not here; `said` is its registry's answer. `told` and `advice` are for one that can be
    fetched."""
    found = said.get("Platforms")
    for_cpus = [each.get("architecture") for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    if for_cpus and cpu_name(machine) not in for_cpus:
        words = f"the registry has {name} for {', '.join(map(str, for_cpus))}, and this host is {cpu_name(machine)}"
        return Finding("image", "fail", words, "set HOLDFAST_DOCKER_IMAGE to an image that runs here")
    return Finding("image", "warn", f"{told}; its registry has it", advice)


def _runtimes(info: Mapping[str, Any]) -> dict[str, Any]:
    found = info.get("Runtimes")
    return found if isinstance(found, dict) else {}


def _components(version: Mapping[str, Any]) -> list[str]:
    found = version.get("Components")
    return [str(each.get("Name")) for each in found if isinstance(each, dict)] if isinstance(found, list) else []
