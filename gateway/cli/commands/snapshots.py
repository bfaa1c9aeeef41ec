"""`holdfast snapshots`: lists stored workspaces, compares, checks, exports and restores them through the running
gateway.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.cli.client.api import CommandFailed, GatewayApi, find_gateway
from gateway.cli.commands.export import target_file
from gateway.cli.console.output import as_typed, complain, say
from gateway.cli.console.progress import Bar, size_in_words
from gateway.config.settings import Settings, resolve_secrets
from gateway.protocol.text import visible_line

NONE = "no snapshots yet: the first is made when the agent has answered, or when a file has changed"
TAR_BLOCK = 512  # a tar has about so many bytes beside each entry's content
PUT_BACK_SECONDS = 600.0  # the present files are stored first


@dataclass(frozen=True, slots=True)
class SnapshotChoice:
    """The session, and the form of the output."""

    session_id: str
    url: str | None = None
    as_json: bool = False
    generation: str = "newest"

    @property
    def all(self) -> str:
        return f"/api/sandboxes/{self.session_id}/snapshots"

    @property
    def one(self) -> str:
        return f"{self.all}/{self.generation}"


# -- looking ----------------------------------------------------------------------------------------------------------


async def list_snapshots(settings: Settings, chosen: SnapshotChoice) -> int:
    async with _api(settings, chosen.url) as api:
        found = await api.ask("GET", chosen.all)
    for snapshot in found["snapshots"]:
        say(json.dumps(snapshot) if chosen.as_json else brief(snapshot, newest=found["newest"]))
    if not chosen.as_json:
        if not found["snapshots"]:
            say(NONE)
        elif found["origin"]:
            say(visible_line(f"it began as a branch of {found['origin']}"))
    return 0


async def show_snapshot(settings: Settings, chosen: SnapshotChoice) -> int:
    async with _api(settings, chosen.url) as api:
        snapshot = await api.ask("GET", chosen.one)
    say(json.dumps(snapshot) if chosen.as_json else full(snapshot))
    return 0


async def diff_snapshots(settings: Settings, chosen: SnapshotChoice, *, since: str | None, to: str) -> int:
    """Without `since`: the changes that generation `to` itself made."""
    async with _api(settings, chosen.url) as api:
        before = since or await _before(api, chosen, to)
        found = await api.ask("GET", f"{chosen.all}/{before}/diff", params={"to": to})
    if chosen.as_json:
        say(json.dumps(found))
        return 0
    for line in changes(found):
        say(line)
    counts = found["counts"]
    if not any(counts.values()):
        say(f"no difference between generations {found['from']} and {found['to']}")
    else:
        told = ", ".join(f"{count:,} {word}" for word, count in counts.items())
        cut = "; not all are shown" if found["truncated"] else ""
        complain(f"from generation {found['from']} to {found['to']}: {told}{cut}")
    return 0


async def _before(api: GatewayApi, chosen: SnapshotChoice, to: str) -> str:
    numbers = [each["generation"] for each in (await api.ask("GET", chosen.all))["snapshots"]]
    if not numbers:
        raise CommandFailed(NONE)
    last = numbers[0] if to == "newest" else int(to)
    older = [number for number in numbers if number < last]
    if not older:
        raise CommandFailed(f"no generation before {last}: there is nothing to compare it with")
    return str(older[0])


async def verify_snapshots(settings: Settings, chosen: SnapshotChoice) -> int:
    """Return 0 if all are whole, 1 if one is not."""
    async with _api(settings, chosen.url) as api:
        result = await _narrated(api, f"{chosen.all}/verify", "verifying")
    if chosen.as_json:
        say(json.dumps(result))
    else:
        for each in result["generations"]:
            say(f"{each['generation']:>6}  {each['at']}  {'damaged' if each['problems'] else 'whole'}")
            for problem in each["problems"]:
                say(f"        {visible_line(problem)}")
    return 0 if result["whole"] else 1


async def export_snapshot(settings: Settings, chosen: SnapshotChoice, *, output: str | None) -> int:
    """Write the tar, or fail: a file with the requested name is complete."""
    if output is None and sys.stdout.isatty():
        raise CommandFailed("a tar cannot be shown on a terminal: name a file with -o FILE, or pipe it to tar")
    size, bar = 0, Bar("exporting", counts_bytes=True)
    async with _api(settings, chosen.url) as api:
        snapshot = await api.ask("GET", chosen.one)
        counts = snapshot["counts"]
        about = snapshot["bytes"] + 2 * TAR_BLOCK * (counts["files"] + counts["directories"] + counts["symlinks"])
        try:
            with target_file(output) as file:
                async for piece in api.download(f"{chosen.all}/{snapshot['generation']}/export"):
                    file.write(piece)
                    size += len(piece)
                    bar.show(size, max(about, size))
        finally:
            bar.clear()
    if output is not None:
        complain(f"generation {snapshot['generation']}: {snapshot['files']:,} files, {size_in_words(size)} in {output}")
    return 0


# -- deciding ---------------------------------------------------------------------------------------------------------


async def branch_snapshot(settings: Settings, chosen: SnapshotChoice) -> int:
    return await _begin(settings, chosen, "branch")


async def restore_snapshot(settings: Settings, chosen: SnapshotChoice, *, in_place: bool) -> int:
    if not in_place:
        return await _begin(settings, chosen, "restore")
    async with _api(settings, chosen.url) as api:
        path = f"{chosen.one}/restore"
        described = await api.ask("POST", path, json={"inPlace": True}, timeout=PUT_BACK_SECONDS)
    if chosen.as_json:
        say(json.dumps(described))
    else:
        which = "the newest" if chosen.generation == "newest" else chosen.generation
        say(f"{chosen.session_id}: the next resume finds generation {which}; its present files are kept, and pinned")
    return 0


async def _begin(settings: Settings, chosen: SnapshotChoice, how: str) -> int:
    async with _api(settings, chosen.url) as api:
        described = await api.ask("POST", f"{chosen.one}/{how}")
    if chosen.as_json:
        say(json.dumps(described))
    else:
        say(described["id"])  # alone on stdout, for scripts
        complain(
            f"branched from {chosen.session_id}, which is unchanged; talk to it: {as_typed('chat', described['id'])}"
        )
    return 0


async def release_snapshot(settings: Settings, chosen: SnapshotChoice) -> int:
    async with _api(settings, chosen.url) as api:
        released = await api.ask("POST", f"{chosen.one}/release")
    if chosen.as_json:
        say(json.dumps(released))
    else:
        was = "released" if released["wasPinned"] else "was not pinned"
        then = "kept until newer ones take its place" if released["kept"] else "not kept any more"
        say(f"{released['generation']}: {was}; {then}")
    return 0


async def collect_snapshots(settings: Settings, *, url: str | None, dry_run: bool, as_json: bool) -> int:
    """Return 1 if something kept it from removing objects."""
    async with _api(settings, url) as api:
        result = await _narrated(api, "/internal/snapshots/gc", "removing", dryRun=str(int(dry_run)))
    if as_json:
        say(json.dumps(result))
    else:
        say(collected(result))
    if result["problem"]:
        complain(visible_line(f"for some users nothing was removed: {result['problem']}"))
    return 1 if result["problem"] else 0


# -- output -----------------------------------------------------------------------------------------------------------


def brief(snapshot: dict[str, Any], *, newest: int) -> str:
    """One snapshot on one line."""
    more = ["newest"] if snapshot["generation"] == newest else []
    more += [f"pinned: {snapshot['pinned']}"] if snapshot["pinned"] else []
    more += [snapshot["note"]] if snapshot["note"] else []
    told = f"{snapshot['files']:>9,} files  {size_in_words(snapshot['bytes']):>10}"
    return visible_line(f"{snapshot['generation']:>6}  {snapshot['at']}  {told}  {'; '.join(more)}".rstrip())


def full(snapshot: dict[str, Any]) -> str:
    counts = snapshot["counts"]
    rows = {
        "generation": snapshot["generation"],
        "kept at": snapshot["at"],
        "holds": f"{counts['files']:,} files, {counts['directories']:,} directories, {counts['symlinks']:,} symlinks",
        "size": size_in_words(snapshot["bytes"]),
        "pinned": snapshot["pinned"],
        "note": snapshot["note"],
        "manifest": snapshot["manifest"],
    }
    head = [f"{name + ':':<13}{visible_line(str(value))}" for name, value in rows.items() if value is not None]
    return "\n".join(
        [
            *head,
            *_named("not kept (sockets, FIFOs, devices, unreadable files)", snapshot["skipped"], counts["skipped"]),
            *_named("changed while it was read", snapshot["unsettled"], counts["unsettled"]),
        ]
    )


def _named(title: str, entries: list[dict[str, Any]], count: int) -> list[str]:
    if not count:
        return []
    rest = [f"  and {count - len(entries):,} more"] if count > len(entries) else []
    return [f"{title}: {count:,}", *(f"  {visible_line(entry['path'])}" for entry in entries), *rest]


def changes(found: dict[str, Any]) -> list[str]:
    """`A` added, `M` changed, `m` changed in mode or time only, `D` removed: by path."""
    marked = [
        *(("A", entry) for entry in found["added"]),
        *(("M" if entry["content"] else "m", entry) for entry in found["changed"]),
        *(("D", entry) for entry in found["removed"]),
    ]
    by_path = sorted(marked, key=lambda each: str(each[1]["path"]))
    return [f"{mark}  {visible_line(entry['path'])}{_KIND_MARKS[entry['type']]}" for mark, entry in by_path]


_KIND_MARKS = {"file": "", "directory": "/", "symlink": "@"}


def collected(result: dict[str, Any]) -> str:
    verb = "would be removed" if result["dryRun"] else "removed"
    return (
        f"{result['sessions']:,} sessions, {result['generations']:,} generations; {result['packs']:,} packs, "
        f"{size_in_words(result['packBytes'])}\n"
        f"{result['removed']:,} objects {verb}, {size_in_words(result['removedBytes'])}; "
        f"{result['marked']:,} unnamed, to be looked at again"
    )


# -- the gateway ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _api(settings: Settings, url: str | None) -> AsyncIterator[GatewayApi]:
    token = resolve_secrets(settings).api_token.get_secret_value()
    async with GatewayApi(find_gateway(settings, url), lambda: {"Authorization": f"Bearer {token}"}) as api:
        yield api


async def _narrated(api: GatewayApi, path: str, what: str, **params: str) -> dict[str, Any]:
    """The result of long work, with a bar while it goes on."""
    bar = Bar(what)
    result: dict[str, Any] | None = None
    try:
        async for told in api.narrate(path, **params):
            if "result" in told:
                result = told["result"]
            else:
                progress = told["progress"]
                bar.show(progress.get("done", progress.get("removed", 0)), progress.get("of"))
    finally:
        bar.clear()
    if result is None:
        raise CommandFailed("the gateway sent no result: look at its log")
    return result
