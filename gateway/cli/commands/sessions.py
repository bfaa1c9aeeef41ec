"""`holdfast sessions`: lists, creates and steers sessions through the running gateway."""

import asyncio
import json
import secrets
import shlex
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gateway.cli.client.api import CommandFailed, GatewayApi
from gateway.cli.client.login import whoever
from gateway.cli.commands.credentials import service_api
from gateway.cli.console.output import agreed, as_typed, complain, say
from gateway.cli.console.progress import Bar, size_in_words
from gateway.cli.console.tables import in_short, print_table
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line

HEAD = ("SESSION", "USER", "STATUS", "IDLE", "VIEWERS", "WHERE", "TITLE")
ALL = "/api/sandboxes"
STEER_SECONDS = 1800.0  # a workspace may have to be synced or restored first, an image to be fetched
LOOK_SECONDS = 1.0  # between two looks at a start that takes long


@dataclass(frozen=True, slots=True)
class SessionChoice:
    """The gateway, the credentials, and the form of the output."""

    url: str | None = None
    token: str | None = None
    as_json: bool = False


async def list_sessions(settings: Settings, chosen: SessionChoice, *, user: str | None) -> int:
    async with service_api(settings, chosen.url, chosen.token) as api:
        found = (await api.ask("GET", ALL, params={} if user is None else {"userId": user}))["sandboxes"]
    if chosen.as_json:
        for session in found:
            say(json.dumps(session))
    elif found:
        print_table([HEAD, *(row(session, time.time()) for session in found)])
    else:
        whose = "no sessions yet" if user is None else visible_line(f"no sessions of {user}")
        complain(f"{whose}; make one with: {as_typed('sessions', 'create')}")
    return 0


async def show_session(settings: Settings, chosen: SessionChoice, session_id: str) -> int:
    async with service_api(settings, chosen.url, chosen.token) as api:
        session = await api.ask("GET", f"{ALL}/{session_id}")
    say(json.dumps(session) if chosen.as_json else full(session))
    return 0


async def create_session(
    settings: Settings,
    chosen: SessionChoice,
    session_id: str | None,
    wish: dict[str, Any],
    *,
    user: str | None,
    service: bool,
) -> int:
    """Create a session for `user`; without one, for this machine's user, or for the user of a given token."""
    if not service and (user is not None or chosen.token is None):
        wish = {"userId": whoever(user)[0], **wish}
    async with service_api(settings, chosen.url, chosen.token) as api:
        there = None if session_id is None else await _found(api, session_id)
        session = await api.create(session_id or secrets.token_hex(16), wish)
    say(json.dumps(session) if chosen.as_json else visible_line(str(session["id"])))
    if there is not None and there["status"] != "archived":
        complain("the session existed already: its title, agent and other settings are unchanged")
    return 0


async def delete_session(settings: Settings, chosen: SessionChoice, session_id: str, *, purge: bool, sure: bool) -> int:
    async with service_api(settings, chosen.url, chosen.token) as api:
        session = await api.ask("GET", f"{ALL}/{session_id}")
        if not sure and not agreed(question(session, purge=purge), "delete"):
            complain("nothing was deleted")
            return 1
        query = {"purge": "1"} if purge else {}
        ended = await api.ask("DELETE", f"{ALL}/{session_id}", params=query, timeout=STEER_SECONDS)
    _tell(chosen, ended, "gone, with its conversation" if purge else "archived")
    return 0


async def steer(
    settings: Settings, chosen: SessionChoice, session_id: str, verb: str, how: Mapping[str, Any] | None = None
) -> int:
    """`wake`, `sleep`, `pause` or `resume` the session."""
    body = {name: value for name, value in (how or {}).items() if value is not None}
    async with service_api(settings, chosen.url, chosen.token) as api:
        asked = api.ask("POST", f"{ALL}/{session_id}/{verb}", json=body, timeout=STEER_SECONDS)
        session = await _watched(api, session_id, asked) if verb in ("wake", "resume") else await asked
    _tell(chosen, session, _status(session))
    return 0


def row(session: Mapping[str, Any], now: float) -> tuple[str, ...]:
    """One session on one line of a table. Pure."""
    return (
        visible_line(str(session["id"])),
        visible_line(str(session["userId"] or "-"), longest=40),
        visible_line(str(session["status"])),
        in_short(max(0.0, now - datetime.fromisoformat(session["lastActiveAt"]).timestamp())),
        str(session["viewers"]),
        visible_line(" ".join(filter(None, (session["provider"], session.get("image")))), longest=60),
        visible_line(str(session["title"] or ""), longest=60),
    )


def full(session: Mapping[str, Any]) -> str:
    """All facts of one session, line by line. Pure."""
    sync, queue = session["sync"], session["queue"]
    sandbox = f"{session['sandboxStatus']}; {session['provider']}, {session['level']}, start {session['incarnation']}"
    own = session["sleepAfter"]
    kept = f"generation {sync['generation']}, {sync['lastSuccess']}" if sync["generation"] else "nothing stored yet"
    repository = " ".join(str(part) for part in (session["repoUrl"], session["repoBranch"]) if part)
    rows: dict[str, Any] = {
        "session": session["id"],
        "title": session["title"],
        "user": session["userId"] or "none: it belongs to the services",
        "status": _status(session),
        "waits": f"as number {queue['position']} to be started; {queue['reason'] or 'its turn comes'}"
        if queue
        else None,
        "sandbox": sandbox,
        "fetches": None if session.get("pull") is None else pull_in_words(session["pull"]),
        "image": " ".join(str(part) for part in (session.get("image"), session.get("imageDigest")) if part),
        "agent": agent_said(session["agent"]),
        "network": session["network"],
        "repository": repository,
        "created": session["createdAt"],
        "last active": session["lastActiveAt"],
        "sleeps after": "as HOLDFAST_SLEEP_AFTER says" if own is None else f"{own:g} s",
        "messages": f"{session['lastSeq']} so far, {session['pending']} wait for the agent",
        "viewers": session["viewers"],
        "workspace": f"{kept}; sync {sync['state']}",
        "sync problem": sync["lastError"] or sync["degraded"],
        "terminals": len(session.get("terminals") or ()),
        "metadata": json.dumps(session["metadata"], ensure_ascii=False) if session["metadata"] else None,
    }
    told = {name: value for name, value in rows.items() if value not in (None, "")}
    return "\n".join(f"{name + ':':<14}{visible_line(str(value))}" for name, value in told.items())


def pull_in_words(pull: Mapping[str, Any]) -> str:
    """Progress of a pull. Pure."""
    layers = f"{pull['layers']} of {pull['ofLayers']} layers"
    size = f", {size_in_words(pull['bytes'])} of {size_in_words(pull['ofBytes'])}" if pull["ofBytes"] else ""
    return visible_line(f"the image {pull['image']}: {layers}{size}")


def question(session: Mapping[str, Any], *, purge: bool) -> str:
    """The question before a session is ended. Pure."""
    named = f"{session['id']} ({session['title']})" if session["title"] else str(session["id"])
    lost = "Its sandbox, its files and its conversation" if purge else "Its sandbox and its files"
    rest = "" if purge else "; its conversation stays, archived"
    return f"Delete session {visible_line(named)}? {lost} are lost{rest}. [y/N] "


def agent_said(agent: dict[str, Any] | list[str] | str | None) -> str:
    """The agent in words. Pure."""
    if agent is None:
        return "as HOLDFAST_AGENT says"
    if isinstance(agent, dict):
        return f"{shlex.join(agent['command'])}, at {agent['connect']}"
    return agent if isinstance(agent, str) else shlex.join(agent)


def _status(session: Mapping[str, Any]) -> str:
    return f"{session['status']} ({session['reason']})" if session["reason"] else str(session["status"])


def _tell(chosen: SessionChoice, session: Mapping[str, Any], became: str) -> None:
    say(json.dumps(session) if chosen.as_json else visible_line(f"{session['id']}: {became}"))


async def _watched(api: GatewayApi, session_id: str, asked: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The answer to a start; meanwhile the progress of its image's pull is shown."""
    asking = asyncio.create_task(asked)
    bar: Bar | None = None
    try:
        while not (await asyncio.wait({asking}, timeout=LOOK_SECONDS))[0]:
            pull = (await api.ask("GET", f"{ALL}/{session_id}")).get("pull")
            if pull is not None:
                bar = bar or Bar(visible_line(f"fetching {pull['image']}"), counts_bytes=True)
                bar.show(pull["bytes"], pull["ofBytes"] or None)
        return await asking
    finally:
        asking.cancel()
        if bar is not None:
            bar.clear()


async def _found(api: GatewayApi, session_id: str) -> dict[str, Any] | None:
    try:
        return await api.ask("GET", f"{ALL}/{session_id}")
    except CommandFailed as failure:
        if failure.code == "unknown_session":
            return None
        raise
