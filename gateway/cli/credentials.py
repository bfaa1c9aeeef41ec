"""The arguments of `holdfast credentials`."""

import argparse
import re
from typing import TYPE_CHECKING

from gateway.cli.arguments import EXIT_USAGE, add_url, token_text
from gateway.cli.console.output import complain

if TYPE_CHECKING:
    from gateway.config.settings import Settings

_ABOUT = """\
Keys of model providers and git hosts, in the running gateway's vault. Sessions use them without having them: requests
of an agent get the key on their way out. What is set here never comes back out.
"""
_EPILOG = """\
examples:
  holdfast credentials set anthropic                     asks for the key, and shows nothing of it
  holdfast credentials set anthropic --everybody         for all users who have none of their own
  holdfast credentials set openai --env OPENAI_API_KEY   from a variable of this shell
  pass show github | holdfast credentials set github     from stdin
  holdfast credentials set github --app-id 12345 < app.pem
  holdfast credentials set anthropic < tokens.json       OAuth: {"access": "...", "refresh": "...", "expires": 0}
  holdfast credentials list
  holdfast credentials rotate                            make another vault key, and seal everything with it
"""
_ON_THE_LINE = (
    "a value is never part of the command line, where other users of this machine can see it: leave it out and type it "
    "when asked, or give it on stdin or by --env NAME. If it was real, replace it at its provider"
)
_PROVIDER = re.compile(r"[A-Za-z0-9-]{1,32}", re.ASCII)


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    credentials = commands.add_parser(
        "credentials",
        help="set, list or remove keys of model providers and git hosts",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = credentials.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    setting = actions.add_parser("set", help="keep one", description="Keep a credential, in place of the one there is.")
    listing = actions.add_parser("list", help="one line each", description="List credentials, without their values.")
    delete = actions.add_parser("delete", help="remove one", description="Remove a credential.")
    rotate = actions.add_parser(
        "rotate",
        help="replace the vault's key",
        description="Make another vault key in the data directory, and seal every credential with it. If it is cut "
        "off, the gateway goes on by itself. A key that is HOLDFAST_VAULT_KEY is replaced there, with "
        "HOLDFAST_VAULT_KEY_OLD.",
    )
    for each in (setting, delete):
        each.add_argument("provider", metavar="PROVIDER", type=_provider, help="anthropic, openai, google, github, ...")
    setting.add_argument("alien", nargs="*", help=argparse.SUPPRESS)
    setting.add_argument("--env", metavar="NAME", help="take the value of this shell's variable")
    setting.add_argument("--app-id", metavar="ID", help="of a GitHub App, whose private key is the value")
    for each in (setting, listing, delete):
        whose = each.add_mutually_exclusive_group()
        whose.add_argument("--user", help="whose it is (default: your login name; with --token that token's user)")
        whose.add_argument("--everybody", action="store_true", help="the operator's, for all users without their own")
        each.add_argument("--token", type=token_text, help="a JWT or an API token to use instead")
    for each in (setting, listing, delete, rotate):
        each.add_argument("--json", action="store_true", help="as JSON, one object per line")
        add_url(each)


def _provider(text: str) -> str:
    if not _PROVIDER.fullmatch(text):  # not repeated: it may be a key
        raise argparse.ArgumentTypeError("this is no name of a provider, such as anthropic, openai, google or github")
    return text


async def run(words: argparse.Namespace, settings: "Settings") -> int:
    """Run the command; return the exit code. Raises CommandFailed."""
    from gateway.cli.commands import vault

    if words.action == "rotate":
        return await vault.rotate_key(settings, url=words.url, as_json=words.json)
    if words.action == "set" and words.alien:
        complain(_ON_THE_LINE)
        return EXIT_USAGE
    chosen = vault.VaultChoice(words.url, words.token, words.user, words.everybody, words.json)
    match words.action:
        case "list":
            return await vault.list_credentials(settings, chosen)
        case "delete":
            return await vault.delete_credential(settings, chosen, words.provider)
    return await vault.set_credential(settings, chosen, words.provider, env=words.env, app_id=words.app_id)
