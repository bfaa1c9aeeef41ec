"""The findings of `holdfast doctor` about the container engine: it is asked for its facts, and then tried."""

import asyncio
import contextlib
import os
import platform
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.cli.commands.doctor_store import Finding
from gateway.cli.commands.engine_findings import (
    is_podman,
    of_engine,
    of_limits,
    of_registry,
    of_restarts,
    of_runtime,
    of_users,
)
from gateway.config.settings import Settings
from sandbox.ports.fleet import Fleet, SandboxSpec
from sandbox.ports.images import asked_of_engine, read_reference
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable
from sandbox.providers.container.containers import find_host_paths
from sandbox.providers.container.engine import SCHEME, Engine, EngineRefused
from sandbox.providers.container.engine_answers import BadAnswer
from sandbox.providers.container.image import Unusable, check_image, image_of, no_image
from sandbox.providers.container.images import may_be_fetched
from sandbox.providers.container.kits import Kits
from sandbox.providers.container.logins import BadLogins, LoginFile, login_for
from sandbox.providers.container.pull_failure import pull_failure

ASK_SECONDS = 10.0
PROBE = "doctor"
_MEND = "start the engine, and set HOLDFAST_DOCKER to its socket; the gateway's user must be in the socket's group"
_WARNS = "the container engine warns: "


def check_engine(settings: Settings, fleet: Fleet, data_dir: Path, warnings: list[str]) -> list[Finding]:
    """`fleet` is one on the temporary directory `data_dir`; it puts its warnings into `warnings`."""
    return asyncio.run(_examine(settings, fleet, data_dir, warnings))


async def _examine(settings: Settings, fleet: Fleet, data_dir: Path, warnings: list[str]) -> list[Finding]:
    engine = Engine(settings.docker, timeout=ASK_SECONDS)
    try:
        version, info = await engine.version(), await engine.info()
        paths = await find_host_paths(engine)
    except (SandboxUnavailable, SandboxFailed, BadAnswer) as error:
        return [Finding("engine", "fail", str(error), _MEND)]
    found = [
        of_engine(settings.docker, version, info, platform.machine()),
        *_socket(settings.docker),
        of_restarts(version, info),
        of_runtime(settings.docker_runtime, version, info),
        of_users(version, info, os.geteuid(), os.getegid(), in_container=paths.in_container),
    ]
    image = await _image(engine, settings, version)
    kit = await _kit(data_dir)
    found += [image, kit]
    if any(each.state == "fail" for each in found) or image.state != "ok":
        return [*found, of_limits(info, [])]
    tried = await _tried(fleet)
    said = [each.removeprefix(_WARNS) for each in warnings]
    return [*found, of_limits(info, said), tried]


def _socket(address: str) -> list[Finding]:
    """Anyone who may use the socket is root here."""
    path = address.removeprefix(SCHEME)
    with contextlib.suppress(OSError):
        if stat.S_IMODE(os.stat(path).st_mode) & stat.S_IWOTH and not _is_hidden(Path(path).parent):
            told = f"everybody on this host may use {path}, and with it become root"
            return [Finding("engine", "warn", told, f"chmod o-rwx {path}")]
    return []


def _is_hidden(directory: Path) -> bool:
    """True if a directory on the way is closed to other users."""
    return any(not each.stat().st_mode & stat.S_IXOTH for each in (directory, *directory.parents))


async def _image(engine: Engine, settings: Settings, version: Mapping[str, Any]) -> Finding:
    name = settings.docker_image
    try:
        there = await engine.image(asked_of_engine(name))
        if there is None:
            if settings.docker_pull == "never" or not may_be_fetched(name):
                return Finding("image", "fail", no_image(name))
            return await _fetchable(engine, settings, version)
        image = image_of(there)
        check_image(image, name, platform.machine())
    except (SandboxUnavailable, SandboxFailed, Unusable, BadAnswer) as error:
        return Finding("image", "fail", str(error), "set HOLDFAST_DOCKER_IMAGE to an image that runs here")
    return Finding("image", "ok", f"{name}, {image.id[:19]}, {image.cpu or 'for any CPU'}")


async def _fetchable(engine: Engine, settings: Settings, version: Mapping[str, Any]) -> Finding:
    """Whether the image's registry has it, where the engine can ask."""
    name = settings.docker_image
    told = f"there is no image {name} on the container engine: the first session waits until it is fetched"
    advice = f"fetch it now: {'podman' if is_podman(version) else 'docker'} pull {name}"
    if is_podman(version):
        return Finding("image", "warn", told, advice)
    login = ""
    try:
        if settings.docker_auth_file is not None:
            found = login_for(LoginFile(settings.docker_auth_file).read(), read_reference(name))
            login = "" if found is None else found.header
        said = await engine.in_registry(asked_of_engine(name), login=login)
    except BadLogins as error:
        return Finding("image", "fail", f"HOLDFAST_DOCKER_AUTH_FILE: {error}", "fix the file")
    except EngineRefused as error:
        failure = pull_failure(name, error.reason, status=error.status, with_login=bool(login))
        return Finding("image", "fail", failure.words, "see the reason; HOLDFAST_DOCKER_IMAGE names another")
    except SandboxUnavailable:
        return Finding("image", "warn", f"{told}; its registry did not answer within {ASK_SECONDS:g} s", advice)
    return of_registry(name, told, advice, said, platform.machine())


async def _kit(data_dir: Path) -> Finding:
    """The kit that brings the bridge into any image. The fleet finds it in the directory where it is made here."""
    began = time.monotonic()
    try:
        kit = await Kits(data_dir / "kit").current()
    except SandboxFailed as error:
        return Finding("kit", "fail", str(error), "install Holdfast again: its own Python could not be copied")
    seconds, size = time.monotonic() - began, await asyncio.to_thread(_bytes_below, kit)
    return Finding("kit", "ok", f"{kit.name}, {size >> 20} MiB, made in {seconds:.1f} s")


def _bytes_below(directory: Path) -> int:
    return sum(each.lstat().st_size for each in directory.rglob("*") if each.is_file())


async def _tried(fleet: Fleet) -> Finding:
    """One container, from its start to its end, with everything that a session's has."""
    began = time.monotonic()
    try:
        await fleet.open()
        try:
            await fleet.start(SandboxSpec(PROBE, 1, ("true",), hold=True))
            seconds = time.monotonic() - began
        finally:
            await fleet.sandbox(PROBE).destroy()
            await fleet.close()
    except (SandboxFailed, SandboxUnavailable) as error:
        return Finding("sandbox", "fail", str(error), "see the reason: the engine or the image gives it")
    return Finding("sandbox", "ok", f"{fleet.name}, {fleet.level}: a container was started in {seconds:.1f} s")
