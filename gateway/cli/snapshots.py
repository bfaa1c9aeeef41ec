"""The arguments of `holdfast snapshots`."""

import argparse
from typing import TYPE_CHECKING

from gateway.cli.arguments import add_url, session_id

if TYPE_CHECKING:
    from gateway.config.settings import Settings

_ABOUT = """\
List and use the stored generations of a session's workspace and agent's home, through the running gateway. restore and
branch make a new session at once, whatever its size, and leave the old one as it is.
"""
_EPILOG = """\
examples:
  holdfast snapshots list first                       stored generations, the newest first
  holdfast snapshots diff first                       the changes of the newest generation
  holdfast snapshots export first -o first.tar        write the newest to a file
  holdfast snapshots restore first --generation 5     a new session that begins with generation 5
  holdfast snapshots restore first --generation 5 --in-place
                                                      in the session itself, which must be paused
"""
_NEWEST = "its number, or newest (default: newest)"


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    snapshots = commands.add_parser(
        "snapshots",
        help="list, restore and branch stored workspaces",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = snapshots.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)

    def action(name: str, brief: str, about: str, *, generation: str | None = _NEWEST) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=brief, description=about)
        if name != "gc":
            added.add_argument("session", metavar="SESSION", type=session_id, help="id of the session")
        if generation is not None:
            needed = name == "release"
            added.add_argument("--generation", metavar="N", type=_generation, required=needed, help=generation)
        if name != "export":
            added.add_argument("--json", action="store_true", help="as JSON, one object per line")
        add_url(added)
        return added

    action("list", "one line each", "List the stored generations, the newest first.", generation=None)
    action("show", "all about one", "Show one generation: its counts, and the files that were skipped or unsettled.")
    diff = action(
        "diff",
        "the changes between two generations",
        "Print the changes: A added, M changed, m changed in mode or time only, D removed.",
        generation="where to begin (default: the one before --to)",
    )
    diff.add_argument("--to", metavar="N", type=_generation, default="newest", help="where to end (default: newest)")
    restore = action(
        "restore",
        "start again from a generation",
        "Make a new session that begins with a generation, and print its id; the old one stays as it is.",
    )
    in_place = "in the session itself, which must be paused; its present files are kept, and pinned"
    restore.add_argument("--in-place", action="store_true", help=in_place)
    action(
        "branch",
        "a second session from a generation",
        "Make a new session that begins with a generation; print its id.",
    )
    action(
        "release", "unpin one", "Let a pinned generation go when its turn comes.", generation="its number, or newest"
    )
    action(
        "verify",
        "check everything that is stored",
        "Read every object of a session's generations, and compare it with its hash. Exit code 1 if one is damaged.",
        generation=None,
    )
    export = action(
        "export",
        "write a generation as a tar",
        "Write a generation as a tar, with workspace/ and agent/ in it. Exit code 1 if it could not be finished: then "
        "FILE is unchanged, and FILE.part has the part that came.",
    )
    export.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: stdout)")
    collect = action(
        "gc",
        "collect garbage",
        "Make one pass over all users' snapshots, as the gateway does by itself every few hours. An object is removed "
        "only if two passes, HOLDFAST_SNAPSHOT_GRACE apart, found that no snapshot names it.",
        generation=None,
    )
    collect.add_argument("--dry-run", action="store_true", help="only look")


def _generation(text: str) -> str:
    if text != "newest" and not (text.isascii() and text.isdecimal() and len(text) <= 15 and int(text)):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no generation: a number, or newest")
    return text


async def run(words: argparse.Namespace, settings: "Settings") -> int:
    """Run the command; return the exit code. Raises CommandFailed."""
    from gateway.cli.commands import snapshots

    if words.action == "gc":
        return await snapshots.collect_snapshots(settings, url=words.url, dry_run=words.dry_run, as_json=words.json)
    named: str | None = getattr(words, "generation", None)
    chosen = snapshots.SnapshotChoice(words.session, words.url, getattr(words, "json", False), named or "newest")
    match words.action:
        case "list":
            return await snapshots.list_snapshots(settings, chosen)
        case "show":
            return await snapshots.show_snapshot(settings, chosen)
        case "diff":
            return await snapshots.diff_snapshots(settings, chosen, since=named, to=words.to)
        case "restore":
            return await snapshots.restore_snapshot(settings, chosen, in_place=words.in_place)
        case "branch":
            return await snapshots.branch_snapshot(settings, chosen)
        case "release":
            return await snapshots.release_snapshot(settings, chosen)
        case "verify":
            return await snapshots.verify_snapshots(settings, chosen)
    return await snapshots.export_snapshot(settings, chosen, output=words.output)
