"""The command line: reads arguments and settings, and calls a command. Each branch imports the modules that its command
needs.
"""

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from gateway.cli import agents, backup, credentials, init, sessions, snapshots, terminals
from gateway.cli.arguments import EXIT_FAILED, EXIT_OK, EXIT_USAGE, add_url, session_id, token_text
from gateway.cli.console.output import complain

if TYPE_CHECKING:
    from gateway.config.settings import Settings

_EPILOG = """\
first steps:
  holdfast init                  write a file of settings for this machine; not needed on a laptop
  holdfast serve                 start the gateway here, and open the link it prints; its data are in .holdfast/
  holdfast url                   in a second terminal: another link, to sign in with a browser
  holdfast chat                  a new session in this terminal, and talk to its agent
  holdfast chat SESSION          come back to it
  holdfast sessions list         list the sessions
  holdfast attach SESSION        a terminal where its agent works

Settings are HOLDFAST_* environment variables, or lines of ./holdfast.toml; `holdfast settings` lists them, and
`holdfast doctor` shows whether they work on this machine.
Exit codes: 0 done, 1 failed, 2 wrong usage or settings.
"""


LOADED_OBJECTS = 50_000  # keeps the garbage collector from walking a command's modules


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="holdfast",
        description="Gateway for coding agents and terminals: whatever dies, everybody comes back to where they were.",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    commands.add_parser(
        "serve",
        help="run the gateway until SIGTERM or Ctrl-C",
        description="Run the gateway. A link that signs you in goes to stdout, the log (JSON lines) to stderr. "
        "SIGTERM and Ctrl-C drain it: it tells viewers to come back and sends acknowledgements; sandboxes stay.",
    )
    token = commands.add_parser("token", help="print a JWT for a user", description="Print a JWT, and nothing else.")
    token.add_argument("--user", required=True, help="the userId claim: the owner of the sessions")
    token.add_argument("--email", required=True, help="the email claim")
    token.add_argument("--ttl", default="24h", metavar="S", help="seconds it is valid, or 10m, 24h (%(default)s)")
    url = commands.add_parser(
        "url",
        help="print a link that signs you in to the page",
        description="Print a link to the running gateway's page, and nothing else. Opened within ten minutes, it signs "
        "one visitor in as USER.",
    )
    url.add_argument("--user", help="who you are there (default: your login name)")
    url.add_argument("--email", help="your address (default: USER@localhost)")
    url.add_argument("--json", action="store_true", help="one JSON object, with the time when the link expires")
    add_url(url)
    commands.add_parser(
        "migrate",
        help="bring the store to this version's schema",
        description="Bring the store to this version's schema. `serve` does it too; this is for doing it beforehand.",
    )
    doctor = commands.add_parser(
        "doctor",
        help="check this machine and these settings, and give advice",
        description="Check store, spool, objects, sandboxes, port, clock, permissions and limits. Exit code 1 if one "
        "fails.",
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object instead of lines")

    settings = commands.add_parser(
        "settings",
        help="list every setting, its value and where that comes from",
        description="List every setting: its value, its source (the environment, a line of the file of settings, or "
        "none), its default and its description. Secrets are shown as `set`.",
    )
    settings.add_argument("--json", action="store_true", help="one JSON array instead of lines")

    providers = commands.add_parser(
        "providers",
        help="list where sessions can run, and each provider's state",
        description="List the providers of the running gateway: their level, whether they can start sandboxes now and "
        "why not, and the number and machine of their sandboxes.",
    )
    providers.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    providers.add_argument("--token", type=token_text, help="a JWT or an API token to use instead")
    add_url(providers)

    orphans = commands.add_parser(
        "orphans",
        help="list leftovers of sandboxes, or remove them",
        description="List leftovers of sandboxes that no session can use, such as containers that have ended. "
        "--remove removes them, even if HOLDFAST_ORPHANS is keep.",
    )
    orphans.add_argument("--remove", action="store_true", help="remove them now")
    orphans.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    add_url(orphans)

    chat = commands.add_parser(
        "chat",
        help="talk to a session's agent in this terminal",
        description="Talk to a session's agent. Without SESSION a new one is created and its id printed. When input or "
        "output is no terminal, lines are read one by one and answers printed to stdout, for scripts.",
    )
    chat.add_argument(
        "session", nargs="?", metavar="SESSION", type=session_id, help="id of the session to come back to"
    )
    chat.add_argument("--user", help="who you are (default: your login name)")
    chat.add_argument("--email", help="your address (default: USER@localhost)")
    chat.add_argument("--token", help="a JWT to use instead; needed for a gateway elsewhere")
    told = "the agent of a new session, as `holdfast agents list` names them (default: HOLDFAST_AGENT)"
    chat.add_argument("--agent", metavar="NAME", help=told)
    told = "how much the agent of a new session may do without asking: ask, edits, all or plan"
    chat.add_argument("--mode", choices=["ask", "edits", "all", "plan"], metavar="MODE", help=told)
    chat.add_argument("--plain", action="store_true", help="line by line even on a terminal")
    add_url(chat)

    messages = commands.add_parser(
        "messages",
        help="print a session's stored conversation",
        description="Print a session's stored conversation, through the running gateway.",
    )
    messages.add_argument("session", metavar="SESSION", type=session_id, help="id of the session")
    messages.add_argument("--follow", action="store_true", help="go on with new messages as they are stored")
    messages.add_argument("--json", action="store_true", help="one JSON object per line")
    add_url(messages)
    export = commands.add_parser(
        "export",
        help="write stored conversations as lines of JSON",
        description="Write stored conversations, through the running gateway: one session's, one user's, or all. Each "
        "line is a record with its sessionId and userId. Exit code 1 if it could not be finished: then FILE is "
        "unchanged, and FILE.part has the lines that came.",
    )
    whose = export.add_mutually_exclusive_group()
    whose.add_argument(
        "session", nargs="?", metavar="SESSION", type=session_id, help="id of the session (default: all sessions)"
    )
    whose.add_argument("--user", help="all sessions of this user")
    export.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: stdout)")
    add_url(export)
    agents.add_to(commands)
    commands.add_parser(
        "egress",
        help="the proxy of the sandboxes; the gateway starts it",
        description="The proxy through which sandboxes reach hosts. `holdfast serve` starts it and watches it; it "
        "lives on while a gateway is restarted.",
    )
    backup.add_to(commands)
    credentials.add_to(commands)
    init.add_to(commands)
    _add_dead_letters(commands)
    sessions.add_to(commands)
    snapshots.add_to(commands)
    terminals.add_to(commands)
    return top


def _add_dead_letters(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    letters = commands.add_parser(
        "dead-letters",
        help="list, retry or drop records that the store refused",
        description="Records that the store refused for good, through the running gateway. In the conversation a "
        "marker of type `rejected` stands in their place. Fix the cause, then retry: the record takes its place.",
    )
    actions = letters.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listing = actions.add_parser("list", help="one line each", description="List dead letters, the oldest first.")
    show = actions.add_parser("show", help="all of one", description="Show one dead letter with its content.")
    retry = actions.add_parser("retry", help="try again to store", description="Try again to store one, or all.")
    drop = actions.add_parser("drop", help="forget for good", description="Forget one, or all: the content is lost.")
    show.add_argument("number", metavar="N", type=_letter_number, help="its number")
    for action in (retry, drop):
        which = action.add_mutually_exclusive_group(required=True)
        which.add_argument("number", metavar="N", type=_letter_number, nargs="?", help="its number")
        which.add_argument("--all", action="store_true", help="every dead letter (of --session, if that is given)")
    drop.add_argument("--yes", action="store_true", help="do not ask")
    for action in (listing, retry, drop):
        action.add_argument("--session", metavar="S", type=session_id, help="only those of this session")
    for action in (listing, show):
        action.add_argument("--json", action="store_true", help="one JSON object per line")
    for action in (listing, show, retry, drop):
        add_url(action)


def _letter_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a dead letter")
    return int(text)


def run() -> NoReturn:
    """`holdfast` itself. The bucket driver has threads that may call Python while the interpreter shuts down, and then
    the process aborts after its work: so where that driver is loaded, the process ends without a shutdown."""
    code = main()
    if "obstore" in sys.modules:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    gc.set_threshold(LOADED_OBJECTS, 10, 10)
    top = parser()
    words = top.parse_args(argv)
    if words.version:
        from gateway.cli.console.output import say
        from gateway.config.version import version

        say(version())
        return EXIT_OK
    if words.command is None:
        top.print_help()
        return EXIT_USAGE
    from gateway.config.config_file import read_config
    from gateway.config.loading import load_settings
    from gateway.config.settings import SettingsError

    try:
        if words.command == "init":
            return init.run(words)
        if words.command == "egress":
            from gateway.cli.commands.egress import egress

            return egress()
        return _run(words, load_settings(os.environ, read_config(os.environ)))
    except SettingsError as error:
        for problem in error.problems:
            complain(problem)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `holdfast messages ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _run(words: argparse.Namespace, settings: "Settings") -> int:
    match words.command:
        case "serve":
            gc.disable()  # until all is loaded; that stays, and is not looked through afterwards either
            from gateway.cli.commands.serve import serve

            gc.freeze()
            return serve(settings)
        case "token":
            from gateway.cli.commands.token import token

            return token(settings, user=words.user, email=words.email, ttl=words.ttl)
        case "migrate":
            from gateway.cli.commands.migrate import migrate

            return migrate(settings)
        case "doctor":
            from gateway.cli.commands.doctor import doctor

            return doctor(settings, os.environ, as_json=words.json)
        case "settings":
            from gateway.cli.commands.settings import settings_command

            return settings_command(settings, as_json=words.json)
    if words.command == "agents":
        return agents.run(words, settings)
    if words.command in backup.COMMANDS:
        return backup.run(words, settings)
    return _talk(words, settings)


def _talk(words: argparse.Namespace, settings: "Settings") -> int:
    """The commands that need a running gateway."""
    import asyncio

    from gateway.cli.client.api import CommandFailed

    try:
        if words.command == "chat":
            from gateway.cli.commands.chat import ChatOptions, chat

            for option, given in (("--agent", words.agent), ("--mode", words.mode)):
                if words.session is not None and given is not None:
                    complain(f"{option} is for a new session: leave SESSION out, or leave {option} out")
                    return EXIT_USAGE
            who = words.token, words.user, words.email
            options = ChatOptions(words.session, words.url, *who, words.plain, words.agent, words.mode)
            return asyncio.run(chat(settings, options))
        if words.command == "url":
            from gateway.cli.commands.url import url

            whose = {"user": words.user, "email": words.email}
            return asyncio.run(url(settings, **whose, at=words.url, as_json=words.json))
        if words.command == "dead-letters":
            return asyncio.run(_decide(words, settings))
        if words.command == "providers":
            from gateway.cli.commands.providers import providers

            return asyncio.run(providers(settings, url=words.url, token=words.token, as_json=words.json))
        if words.command == "orphans":
            from gateway.cli.commands.orphans import orphans

            return asyncio.run(orphans(settings, url=words.url, remove=words.remove, as_json=words.json))
        if words.command == "credentials":
            return asyncio.run(credentials.run(words, settings))
        if words.command == "sessions":
            return asyncio.run(sessions.run(words, settings))
        if words.command == "snapshots":
            return asyncio.run(snapshots.run(words, settings))
        if words.command in terminals.COMMANDS:
            return asyncio.run(terminals.run(words, settings))
        if words.command == "export":
            from gateway.cli.commands.export import export

            whose = {"session_id": words.session, "user": words.user}
            return asyncio.run(export(settings, **whose, output=words.output, url=words.url))
        from gateway.cli.commands.messages import messages

        return asyncio.run(
            messages(settings, session_id=words.session, follow=words.follow, as_json=words.json, url=words.url)
        )
    except CommandFailed as failure:
        complain(str(failure))
        return EXIT_FAILED


async def _decide(words: argparse.Namespace, settings: "Settings") -> int:
    from gateway.cli.commands import dead_letters as letters

    match words.action:
        case "list":
            return await letters.list_letters(settings, url=words.url, session_id=words.session, as_json=words.json)
        case "show":
            return await letters.show_letter(settings, url=words.url, number=words.number, as_json=words.json)
    if words.number is not None and words.session is not None:
        complain("--session goes with --all: a number names its letter by itself")
        return EXIT_USAGE
    chosen = letters.DeadLetterChoice(words.number, words.session)
    if words.action == "retry":
        return await letters.retry_letters(settings, url=words.url, chosen=chosen)
    return await letters.drop_letters(settings, url=words.url, chosen=chosen, sure=words.yes)
