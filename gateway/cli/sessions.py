"""The arguments of `holdfast sessions`."""

import argparse
import os
from typing import TYPE_CHECKING

from gateway.cli.arguments import add_url, session_id, token_text

if TYPE_CHECKING:
    from gateway.config.settings import Settings

_ABOUT = """\
List, make and steer sessions, through the running gateway. Without --token the API token of the data directory (or
HOLDFAST_API_TOKEN) is used, which gives access to the sessions of all users.
"""
_EPILOG = """\
examples:
  holdfast sessions list                              all sessions, the newest first
  holdfast sessions create first --title "a try"      a session of yours; then: holdfast chat first
  holdfast sessions create --sleep-after 4h           under a new id, which is printed; sleeps after 4 idle hours
  holdfast sessions show first
  holdfast sessions sleep first                       stop its sandbox; the next message, or wake, starts it again
  holdfast sessions pending first                     messages that wait; cancel one: holdfast sessions cancel first 7
  holdfast sessions delete first                      remove its sandbox and files; its conversation stays, archived
  HOLDFAST_API_TOKEN=... holdfast sessions list --url https://gw.example.com
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sessions = commands.add_parser(
        "sessions",
        help="list, make and steer sessions",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = sessions.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)

    def action(name: str, brief: str, about: str) -> argparse.ArgumentParser:
        added = actions.add_parser(name, help=brief, description=about)
        if name == "create":
            told = "id of the session (default: a new one)"
            added.add_argument("session", metavar="SESSION", type=session_id, nargs="?", help=told)
        elif name != "list":
            added.add_argument("session", metavar="SESSION", type=session_id, help="id of the session")
        return added

    listing = action("list", "one line each", "List sessions, the newest first, archived ones included.")
    listing.add_argument("--user", help="only those of this user (default: all users)")
    action("show", "all about one", "Show a session: its status and why, its sandbox, its workspace.")
    _add_wish(
        action(
            "create",
            "make one, and print its id",
            "Make a session, start its sandbox, and print its id. An existing session stays as it is; an archived "
            "one is revived.",
        )
    )
    action("wake", "start its sandbox", "Start a session's sandbox.")
    action(
        "sleep", "stop its sandbox until it is needed", "Stop a session's sandbox; the next message starts it again."
    )
    action("pause", "stop its sandbox until resume", "Stop a session's sandbox; messages wait until it is resumed.")
    action("pending", "messages that wait", "List the messages that a session's agent does not have yet, in order.")
    cancel = action("cancel", "take a message back", "Cancel a message that the session's agent does not have yet.")
    cancel.add_argument("seq", metavar="SEQ", type=int, help="its number, as `pending` lists it")
    resume = action("resume", "go on", "Start a session that is paused, or that says error, needs_env or unrestored.")
    _add_env(resume)
    resume.add_argument("--empty", action="store_true", help="begin with an empty workspace if none can be restored")
    resume.add_argument("--keep", action="store_true", help="go on with the files on the disk, if the store has none")
    delete = action(
        "delete",
        "end one",
        "End a session: its sandbox and its files go. Its conversation stays, archived, unless --purge is given.",
    )
    delete.add_argument("--purge", action="store_true", help="its conversation goes, too")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    for each in actions.choices.values():
        each.add_argument("--json", action="store_true", help="as JSON, one object per line")
        each.add_argument("--token", type=token_text, help="a JWT or an API token to use instead")
        add_url(each)


def _add_wish(create: argparse.ArgumentParser) -> None:
    whose = create.add_mutually_exclusive_group()
    whose.add_argument("--user", help="whose it is (default: your login name; with --token that token's user)")
    whose.add_argument("--service", action="store_true", help="it belongs to no user, and no JWT opens it")
    create.add_argument("--title", help="a name for people")
    told = "which agent: claude-code, codex, ..., none, or a command line (default: HOLDFAST_AGENT)"
    create.add_argument("--agent", metavar="NAME", help=told)
    create.add_argument("--provider", metavar="P", help="where it runs: local or docker (default: HOLDFAST_SANDBOX)")
    create.add_argument("--image", help="the image of its container, such as debian:bookworm")
    create.add_argument("--network", metavar="N", help="hosts that its programs may reach: none, outbound, or a,*.b")
    create.add_argument("--repo", metavar="URL", help="a repository to clone into its workspace")
    create.add_argument("--branch", help="which of its branches")
    create.add_argument(
        "--sleep-after", metavar="S", help="idle time until it sleeps: 90, 15m, 4h (default: the setting)"
    )
    _add_env(create)


def _add_env(command: argparse.ArgumentParser) -> None:
    told = "a variable for its sandbox; without =VALUE, this shell's. Kept in memory only. May be repeated"
    command.add_argument("--env", metavar="NAME[=VALUE]", type=_variable, action="append", default=[], help=told)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or (not equals and name not in os.environ):
        raise argparse.ArgumentTypeError(f"{name[:40]!a} is not set here: write NAME=VALUE")
    return name, value if equals else os.environ[name]


async def run(words: argparse.Namespace, settings: "Settings") -> int:
    """Run the command; return the exit code. Raises CommandFailed."""
    from gateway.cli.commands import pending, sessions

    chosen = sessions.SessionChoice(words.url, words.token, words.json)
    match words.action:
        case "list":
            return await sessions.list_sessions(settings, chosen, user=words.user)
        case "show":
            return await sessions.show_session(settings, chosen, words.session)
        case "create":
            asked = {
                "title": words.title,
                "agent": words.agent,
                "provider": words.provider,
                "image": words.image,
                "network": network(words.network),
                "repoUrl": words.repo,
                "repoBranch": words.branch,
                "sleepAfter": words.sleep_after,
                "envVars": dict(words.env) or None,
            }
            wish = {name: value for name, value in asked.items() if value is not None}
            whose = {"user": words.user, "service": words.service}
            return await sessions.create_session(settings, chosen, words.session, wish, **whose)
        case "delete":
            return await sessions.delete_session(settings, chosen, words.session, purge=words.purge, sure=words.yes)
        case "pending":
            return await pending.list_pending(settings, chosen, words.session)
        case "cancel":
            return await pending.cancel_pending(settings, chosen, words.session, words.seq)
        case "resume":
            how = {"envVars": dict(words.env) or None, "empty": words.empty or None, "keep": words.keep or None}
            return await sessions.steer(settings, chosen, words.session, "resume", how)
    return await sessions.steer(settings, chosen, words.session, words.action)


def network(words: str | None) -> "str | dict[str, list[str]] | None":
    """As the API has it."""
    if words in (None, "none", "outbound"):
        return words
    return {"allow": [each.strip() for each in words.split(",")]}
