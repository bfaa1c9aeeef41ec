"""`holdfast doctor`: checks whether a gateway will work here, with advice if not. It changes nothing that a start would
not.
"""

import asyncio
import json
import os
import resource
import shutil
import socket
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from gateway.agents.agents import Agents
from gateway.agents.launch import needs_install
from gateway.agents.shelf import AgentShelf
from gateway.app import TRUSTS_EVERYBODY, make_fleets
from gateway.cli.commands.doctor_names import check_names
from gateway.cli.commands.doctor_objects import check_objects
from gateway.cli.commands.doctor_snapshots import check_snapshots
from gateway.cli.commands.doctor_store import Finding, check_store
from gateway.cli.commands.doctor_vault import check_vault
from gateway.cli.console.output import say
from gateway.config.data_dir import RESTORING, holder
from gateway.config.settings import Settings, SettingsError
from gateway.config.sources import ENVIRONMENT, FILE
from gateway.config.values import widest
from gateway.protocol.text import visible_line
from gateway.session.recording.files import prepare_directory
from sandbox.ports.fleet import Fleet
from sandbox.ports.sandbox import SandboxFailed

FIRST_PLAUSIBLE = 1_735_689_600  # 2025-01-01: a clock before it was never set
FREE_BYTES = 1 << 30
FILES_WANTED = 10_000
FILES_NEEDED = 256  # for the gateway itself and some sessions with viewers


@runtime_checkable
class LimitedFleet(Protocol):
    """A fleet that knows whether its host can hold sandboxes to limits."""

    @property
    def no_limits(self) -> str | None: ...


def doctor(settings: Settings, environ: Mapping[str, str], *, as_json: bool) -> int:
    findings = [*check_names(settings, environ), *examine(settings)]
    failed = any(finding.state == "fail" for finding in findings)
    if as_json:
        say(json.dumps({"ok": not failed, "checks": [asdict(finding) for finding in findings]}, indent=2))
        return int(failed)
    for finding in findings:
        say(f"{finding.state:4}  {finding.name:<10}  {visible_line(finding.told)}")
        if finding.advice:
            say(f"                  -> {visible_line(finding.advice)}")
    return int(failed)


def examine(settings: Settings) -> list[Finding]:
    """Every finding, in the order a start would meet them. A check that crashes becomes a finding and does not end the
    others."""
    checks: list[tuple[str, Callable[[Settings], Finding | list[Finding]]]] = [
        ("settings", _config),
        ("data", _data),
        ("gateway", _gateway),
        ("store", check_store),
        ("vault", check_vault),
        ("objects", check_objects),
        ("snapshots", check_snapshots),
        ("sandbox", _sandbox),
        ("agent", _agent),
        ("recordings", _recordings),
        ("port", _port),
        ("proxies", _proxies),
        ("clock", _clock),
        ("files", _files),
    ]
    found: list[Finding] = []
    for name, check in checks:
        try:
            told = check(settings)
            found += [told] if isinstance(told, Finding) else told
        except (OSError, sqlite3.Error) as error:
            found.append(Finding(name, "fail", str(error), "see the reason; check HOLDFAST_DATA_DIR and its owner"))
    return found


def _config(settings: Settings) -> list[Finding]:
    """A finding about the file, if there is one: a faulty one has ended the command before this."""
    if settings.config is None:
        return []
    in_file = sum(each.kind == FILE for each in settings.sources.values())
    beside = sum(each.kind == ENVIRONMENT for each in settings.sources.values())
    told = f"{in_file} from {settings.config}, {beside} from the environment"
    return [Finding("settings", "ok", told, "holdfast settings lists them")]


def _data(settings: Settings) -> Finding:
    place = settings.data_dir.absolute()
    if not place.exists():
        return Finding("data", "ok", f"{place} does not exist yet; the first start makes it")
    if not place.is_dir():
        return Finding("data", "fail", f"{place} is no directory", "set HOLDFAST_DATA_DIR to one")
    if (place / RESTORING).exists():
        return Finding("data", "fail", f"a restore into {place} was cut off", "empty it, and restore again")
    info = place.stat()
    if info.st_uid != os.geteuid():
        return Finding("data", "fail", f"{place} belongs to another user", "run as that user, or chown -R it")
    open_to_others = [each for each in _private(place) if each.stat().st_mode & 0o077]
    if open_to_others:
        names = " ".join(str(each) for each in open_to_others)
        return Finding("data", "fail", f"others may read {names}", f"chmod go-rwx {names}")
    free = shutil.disk_usage(place).free
    if free < FREE_BYTES:
        return Finding("data", "warn", f"{place} has {free >> 20} MiB left", "make room: a full disk refuses messages")
    return Finding("data", "ok", f"{place}, {free >> 30} GiB free")


def _private(place: Path) -> list[Path]:
    """The existing files that hold secrets or conversations."""
    secrets = place / "secrets"
    named = [place, secrets, *(secrets.glob("*") if secrets.is_dir() else ()), *place.glob("*.db*")]
    return [each for each in named if each.exists() and not stat.S_ISLNK(each.lstat().st_mode)]


def _gateway(settings: Settings) -> Finding:
    note = holder(settings.data_dir)
    if note is None:
        return Finding("gateway", "ok", "none runs on this data directory")
    return Finding("gateway", "ok", f"one runs here: pid {note.get('pid')}, {note.get('address', 'starting')}")


def _sandbox(settings: Settings) -> list[Finding]:
    """Each provider's own check, on a temporary directory."""
    warnings: list[str] = []
    # A container's engine may see the data directory and no other directory of ours.
    near = settings.data_dir if "docker" in settings.providers and settings.data_dir.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-", dir=near) as place:
        if not settings.agents_dir.is_dir():  # it would be made
            settings = replace(settings, agents_dir=Path(place) / "agents")
        try:
            fleets = make_fleets(settings, data_dir=Path(place), warn=warnings.append, installation=_trial)
        except SettingsError as error:
            return [Finding("sandbox", "fail", "; ".join(error.problems), "fix HOLDFAST_SANDBOX_ENV_FILE's file")]
        return [finding for fleet in fleets for finding in _fleet(settings, fleet, Path(place), warnings)]


async def _trial(own: str) -> str | None:
    """The mark by which gateways find the leftovers of a killed doctor."""
    from sandbox.providers.container.installation import TRIALS

    return TRIALS


def _fleet(settings: Settings, fleet: Fleet, place: Path, warnings: list[str]) -> list[Finding]:
    del warnings[:]
    if fleet.name == "docker":
        from gateway.cli.commands.doctor_engine import check_engine  # only users of containers pay for this import

        return check_engine(settings, fleet, place, warnings)
    try:
        level, no_limits = asyncio.run(_open_once(fleet))
    except SandboxFailed as error:
        advice = "sh deploy/system-packages.sh installs what is missing on Debian"
        return [Finding("sandbox", "fail", str(error), "" if "HOLDFAST_LIMIT_" in str(error) else advice)]
    if level == "contained":
        missing_git = "" if shutil.which("git") else "; git is missing: repoUrl will not work"
        found = Finding("sandbox", "warn" if missing_git else "ok", f"{fleet.name}, {level}{missing_git}")
        return [found, _limits(settings, no_limits)]
    told = "; ".join(warnings) or "level trusted: no isolation between sessions"
    return [Finding("sandbox", "warn", told, "your own code only; install bubblewrap for level contained")]


def _agent(settings: Settings) -> Finding | list[Finding]:
    """The agent of sessions that name none, if it has to be installed."""
    agents = Agents(settings.agent, AgentShelf(settings.agents_dir))
    if (gap := agents.problem(settings.agent)) is not None:
        return Finding("agent", "fail", f"HOLDFAST_AGENT: {gap.told}")
    if not needs_install(settings.agent):
        return []
    advice = f"holdfast agents doctor {settings.agent.said} tries it"
    return Finding("agent", "ok", f"HOLDFAST_AGENT is {settings.agent.said}, and installed", advice)


def _limits(settings: Settings, problem: str | None) -> Finding:
    """The limits of a sandbox as a whole, and whether the host can enforce them."""
    memory, cpus, pids = settings.limit_memory, settings.limit_cpus, settings.limit_pids
    asked = {
        "MEMORY": None if memory is None else f"{memory >> 20} MiB",
        "CPUS": None if cpus is None else f"{cpus:g}",
        "PIDS": None if pids is None else f"{pids}",
    }
    named = ", ".join(f"HOLDFAST_LIMIT_{name}={value}" for name, value in asked.items() if value is not None)
    if problem is None:
        return Finding("limits", "ok", named or "none is set; control groups are there for HOLDFAST_LIMIT_*")
    told = f"a sandbox is held to no limits as a whole: {problem}"
    return Finding("limits", "warn" if named else "ok", told, "this is measured from this login: a service may differ")


async def _open_once(fleet: Fleet) -> tuple[str, str | None]:
    """The level, and the reason why sandboxes cannot be held to limits."""
    await fleet.open()
    try:
        return fleet.level, fleet.no_limits if isinstance(fleet, LimitedFleet) else None
    finally:
        await fleet.close()


def _recordings(settings: Settings) -> Finding | list[Finding]:
    path = settings.record_sessions
    if path is None:
        return []
    try:
        prepare_directory(path)
    except OSError as error:
        return Finding("recordings", "fail", str(error), "fix the directory, or unset HOLDFAST_RECORD_SESSIONS")
    told = f"sessions are recorded in {path}: it holds conversations, and nothing removes them"
    return Finding("recordings", "warn", told, "unset HOLDFAST_RECORD_SESSIONS when you have your recording")


def _port(settings: Settings) -> Finding:
    if (note := holder(settings.data_dir)) is not None:
        return Finding("port", "ok", f"the gateway that runs has {note.get('address', 'its own')}")
    where = f"{settings.host}:{settings.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return Finding("port", "fail", f"{where}: {error.strerror or error}", "set HOLDFAST_HOST and HOLDFAST_PORT")
    if not settings.loopback_only:
        return Finding("port", "warn", f"{where} is free, and open to the network", "put a proxy with TLS in front")
    return Finding("port", "ok", f"{where} is free")


def _proxies(settings: Settings) -> Finding | list[Finding]:
    if wide := widest(settings.trusted_proxies):
        return Finding("proxies", "warn", TRUSTS_EVERYBODY.format(", ".join(wide)))
    return []


def _clock(settings: Settings) -> Finding:
    """Tokens expire by the wall clock. A record from the future means that it was turned back."""
    now = time.time()
    if now < FIRST_PLAUSIBLE:
        return Finding("clock", "fail", "the clock was never set", "set it: tokens expire by it")
    kept = settings.store.path if settings.store.kind == "sqlite" else settings.spool_path
    newest = kept.stat().st_mtime if kept.exists() else now
    if newest > now + 60:
        return Finding("clock", "warn", f"{kept} was written {newest - now:.0f} s in the future", "check the clock")
    return Finding("clock", "ok", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)))


def _files(settings: Settings) -> Finding:
    """Each connection needs a descriptor, each running session one more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(FILES_WANTED, 2 * settings.max_connections)
    if soft != resource.RLIM_INFINITY and soft < FILES_NEEDED:
        told = f"ulimit -n is {soft}: a few sessions and viewers use that up, and the next ones are refused"
        return Finding("files", "fail", told, f"ulimit -n {wanted} before holdfast serve")
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return Finding("files", "warn", f"ulimit -n is {soft}, at most {hard}", f"raise it to {wanted} or more")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        return Finding("files", "warn", f"ulimit -n is {soft}", f"ulimit -n {wanted} before holdfast serve")
    return Finding("files", "ok", f"ulimit -n is {soft}")
