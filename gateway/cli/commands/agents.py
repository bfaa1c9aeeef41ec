"""`holdfast agents`: lists, installs and tests agents on this machine."""

import asyncio
import json
import os
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gateway.agents.agents import Agents, ListedAgent
from gateway.agents.catalogue import KNOWN
from gateway.agents.choice import AgentChoice, read_choice
from gateway.agents.install.commands import InstallFailed
from gateway.agents.install.installer import AgentInstaller, InstalledVersion
from gateway.agents.launch import AgentLaunch
from gateway.agents.shelf import AgentShelf
from gateway.agents.trial.answers import SAID
from gateway.agents.trial.model import TrialModel
from gateway.agents.trial.surroundings import surroundings
from gateway.agents.trial.turn import TrialFailed, address_inside, one_turn
from gateway.app import make_fleets
from gateway.cli.arguments import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from gateway.cli.commands.doctor_store import Finding
from gateway.cli.console.output import complain, say
from gateway.cli.console.progress import Bar, size_in_words
from gateway.cli.console.tables import print_table
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line
from sandbox.ports.sandbox import SandboxFailed


def list_agents(settings: Settings, *, as_json: bool) -> int:
    listed = Agents(settings.agent, AgentShelf(settings.agents_dir)).listed()
    if as_json:
        for agent in listed:
            say(json.dumps(as_object(agent)))
        return EXIT_OK
    rows: list[tuple[str, ...]] = [("NAME", "AGENT", "TRIED", "INSTALLED", "SESSIONS")]
    for agent in listed:
        installed = ", ".join(f"{each}*" if each == agent.current else each for each in agent.installed)
        rows.append((agent.name, agent.title, agent.version or "-", installed or "-", "no" if agent.gap else "yes"))
    print_table(rows)
    for agent in listed:
        if agent.gap is not None and agent.installed:
            say(f"{agent.name}: {agent.gap.told}")
    if any(agent.gap is not None and agent.gap.code == "agent_not_installed" for agent in listed):
        say("To install one: holdfast agents install NAME")
    return EXIT_OK


def as_object(agent: ListedAgent) -> dict[str, Any]:
    """The agent as JSON. Pure."""
    return {
        "name": agent.name,
        "title": agent.title,
        "version": agent.version or None,
        "installed": agent.installed,
        "current": agent.current or None,
        "available": agent.gap is None,
        "reason": None if agent.gap is None else agent.gap.told,
    }


def install(settings: Settings, asked: str, *, as_json: bool) -> int:
    try:
        choice = installable(asked)
    except ValueError as error:
        complain(f"{asked[:80]!a}: {error}")
        return EXIT_USAGE
    bar = Bar(choice.said, counts_bytes=True)
    installer = AgentInstaller(AgentShelf(settings.agents_dir), os.environ, tell=_teller(bar), grown=bar.show)
    try:
        done = installer.install(KNOWN[choice.name], choice.version)
    except InstallFailed as error:
        bar.clear()
        complain(str(error))
        return EXIT_FAILED
    bar.clear()
    say(json.dumps(_done(done)) if as_json else _told(done))
    return EXIT_OK


def installable(asked: str) -> AgentChoice:
    """The agent to install, from its name as typed. Raises ValueError."""
    choice = read_choice(asked)
    if choice.name not in KNOWN:
        raise ValueError(f"wants one of {', '.join(KNOWN)}, perhaps with @VERSION")
    return choice


def _teller(bar: Bar) -> Any:
    def tell(text: str) -> None:
        bar.clear()
        complain(text)

    return tell


def _done(done: InstalledVersion) -> dict[str, Any]:
    return {
        "name": done.name,
        "version": done.version,
        "path": str(done.place),
        "fresh": done.fresh,
        "locked": done.locked,
        "bytes": done.bytes,
        "seconds": round(done.seconds, 1),
    }


def _told(done: InstalledVersion) -> str:
    title = f"{KNOWN[done.name].title} {done.version}"
    if not done.fresh:
        return f"{title} was there already: {done.place}"
    compared = "" if done.locked else "; Holdfast was not tried with this version"
    return f"{title}: {size_in_words(done.bytes)} in {done.seconds:.0f} s, {done.place}{compared}"


def doctor(settings: Settings, asked: str, *, as_json: bool) -> int:
    """Test an agent: that it is installed, and one turn of it in a sandbox like this gateway's, with the built-in
    model."""
    try:
        choice = installable(asked)
    except ValueError as error:
        complain(f"{asked[:80]!a}: {error}")
        return EXIT_USAGE
    findings = examine(settings, choice)
    failed = any(finding.state == "fail" for finding in findings)
    if as_json:
        say(json.dumps({"ok": not failed, "checks": [asdict(finding) for finding in findings]}, indent=2))
        return int(failed)
    for finding in findings:
        say(f"{finding.state:4}  {finding.name:<10}  {visible_line(finding.told)}")
        if finding.advice:
            say(f"                  -> {visible_line(finding.advice)}")
    return int(failed)


def examine(settings: Settings, choice: AgentChoice) -> list[Finding]:
    shelf = AgentShelf(settings.agents_dir)
    agents, known = Agents(choice, shelf), KNOWN[choice.name]
    if (gap := agents.problem(choice)) is not None:
        return [Finding("installed", "fail", gap.told)]
    found = shelf.find(choice.name, choice.version)
    version = "" if found is None else found.version
    tried = "" if version in known.versions else f"; Holdfast was tried with {' and '.join(known.versions)}"
    findings = [Finding("installed", "warn" if tried else "ok", f"{known.title} {version}{tried}")]
    try:
        return findings + asyncio.run(_try(settings, choice.name, agents.launch(None, None)))
    except (TrialFailed, SandboxFailed) as error:
        advice = f"holdfast agents install {choice.name}@{version} puts it back; holdfast doctor examines sandboxes"
        return [*findings, Finding("turn", "fail", str(error), advice)]


async def _try(settings: Settings, name: str, launch: AgentLaunch) -> list[Finding]:
    model = TrialModel()
    plain = replace(settings, sandbox="local", providers=("local",), sandbox_env_file=None)
    with tempfile.TemporaryDirectory(prefix="holdfast-trial-") as place:
        (fleet,) = make_fleets(plain, data_dir=Path(place), warn=lambda text: None)
        await fleet.open()
        try:
            async with model.serve():
                began = time.monotonic()
                around = surroundings(name, address_inside(fleet, model))
                said = await one_turn(fleet, Path(place), launch, around, model)
        finally:
            await fleet.close()
    if SAID not in said:
        raise TrialFailed(f"it answered {said[:200]!r}, and the model had said {SAID!r}")
    return [
        Finding("sandbox", "ok", f"local, {fleet.level}"),
        Finding("turn", "ok", f"answered after {time.monotonic() - began:.1f} s, with its start"),
    ]
