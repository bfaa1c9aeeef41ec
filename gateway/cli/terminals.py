"""The arguments of `holdfast attach`, `record` and `terminals`."""

import argparse
from typing import TYPE_CHECKING

from gateway.cli.arguments import add_url, session_id
from gateway.cli.console.detach_keys import DEFAULT, read_keys

if TYPE_CHECKING:
    from gateway.config.settings import Settings

COMMANDS = ("attach", "record", "terminals")
_ATTACH = """\
Use a session's terminal in this one. It goes on when you leave, and shows its present screen when you come back.
Leave with Ctrl-] pressed twice (--detach-keys); the exit code is the program's when it ends, 0 when you leave.

When input or output is no terminal, lines of stdin are typed, output is printed as it comes, and the end of the input
is typed as Ctrl-D: give such a script a --name of its own, so that the shell it ends is its own.
"""
_ATTACH_EPILOG = """\
examples:
  holdfast attach first                           the terminal `main` of session `first`; made if there is none
  holdfast attach first --view                    only watch; Ctrl-C leaves, too
  echo 'make test' | holdfast attach first --name ci
                                                  run it in a shell of its own; its exit code is the command's
"""
_RECORD = """\
Record a terminal as asciicast v2, while it happens, until its program ends, Ctrl-C, or --for. The terminal's users
notice nothing, and a session that sleeps is not woken. The file can be played at any time, also if this is killed.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    raw = argparse.RawDescriptionHelpFormatter
    attach = commands.add_parser(
        "attach",
        help="use a session's terminal in this one",
        description=_ATTACH,
        epilog=_ATTACH_EPILOG,
        formatter_class=raw,
    )
    record = commands.add_parser("record", help="record a terminal in a file", description=_RECORD, formatter_class=raw)
    listing = commands.add_parser(
        "terminals",
        help="list a session's terminals",
        description="List a session's terminals: size, number of viewers, idle time, how they ended.",
    )
    for command in (attach, record, listing):
        command.add_argument("session", metavar="SESSION", type=session_id, help="id of the session")
    for command in (attach, record):
        command.add_argument("--name", default="main", type=_name, help="which of its terminals (%(default)s)")
    attach.add_argument("--view", action="store_true", help="watch only: keys are not sent")
    attach.add_argument(
        "--detach-keys",
        default=DEFAULT,
        metavar="KEYS",
        type=_keys,
        help="keys that leave: ctrl-p,ctrl-q or ^P^Q; none: only the program's end does (%(default)s)",
    )
    record.add_argument("-o", "--output", default="-", metavar="FILE", help="a new file, or - (default: stdout)")
    record.add_argument(
        "--from-ring", action="store_true", help="begin with the earlier output that the gateway still has, at time 0"
    )
    limit = "tell players to cut pauses short"
    record.add_argument("--idle-time-limit", metavar="S", type=_seconds, help=limit)
    record.add_argument("--for", dest="most_seconds", metavar="S", type=_seconds, help="end after so long: 30, 10m")
    listing.add_argument("--json", action="store_true", help="one JSON object per line")
    for command in (attach, record, listing):
        command.add_argument("--user", help="who you are (default: your login name)")
        command.add_argument("--email", help="your address (default: USER@localhost)")
        command.add_argument("--token", help="a JWT to use instead; needed for a gateway elsewhere")
        add_url(command)


def _name(text: str) -> str:
    from sandbox.protocol.terminal import NAME

    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!a} is no name: 1 to 64 of A-Z a-z 0-9 _ -, no _ or - first")
    return text


def _keys(text: str) -> str:
    try:
        read_keys(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _seconds(text: str) -> float:
    from gateway.config.values import positive_duration

    try:
        return positive_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def run(words: argparse.Namespace, settings: "Settings") -> int:
    """Run the command; return the exit code. Raises CommandFailed."""
    from gateway.cli.commands.terminal_access import TerminalChoice

    name = getattr(words, "name", "main")
    chosen = TerminalChoice(words.session, name, words.url, words.token, words.user, words.email)
    match words.command:
        case "attach":
            from gateway.cli.commands.attach import attach

            return await attach(settings, chosen, view=words.view, detach_keys=words.detach_keys)
        case "record":
            from gateway.cli.commands.record import RecordOptions, record

            options = RecordOptions(words.output, words.from_ring, words.idle_time_limit, words.most_seconds)
            return await record(settings, chosen, options)
    from gateway.cli.commands.terminals import terminals

    return await terminals(settings, chosen, as_json=words.json)
