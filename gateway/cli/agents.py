"""The arguments of `holdfast agents`."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config.settings import Settings

_ABOUT = """\
Install the agents that sessions may have, on this machine, in HOLDFAST_AGENTS_DIR. A gateway that runs here has them at
once; it need not run.
"""
_EPILOG = """\
examples:
  holdfast agents list                            all agents, and the installed versions
  holdfast agents install claude-code             the version that Holdfast was tested with
  holdfast agents install pi@0.74.2               another one; the version installed last is the one sessions get
  holdfast agents doctor claude-code              one turn, with a built-in model: no key, no network
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    agents = commands.add_parser(
        "agents",
        help="list, install and test the agents that sessions may have",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = agents.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listing = actions.add_parser("list", help="list agents", description="List agents, and their installed versions.")
    install = actions.add_parser(
        "install",
        help="install an agent on this machine",
        description="Install an agent by npm: the version Holdfast was tested with, compared with the hashes it ships, "
        "or another one. No script of a package runs. A second installation changes nothing.",
    )
    install.add_argument("agent", metavar="NAME[@VERSION]", help="which agent, such as claude-code or pi@0.74.2")
    doctor = actions.add_parser(
        "doctor",
        help="test an installed agent, without a key",
        description="Test an installed agent: one turn in a sandbox of its own, with a built-in model. Exit code 1 if "
        "it does not answer.",
    )
    doctor.add_argument("agent", metavar="NAME[@VERSION]", help="which agent, such as claude-code or pi@0.74.2")
    for each in (listing, install, doctor):
        each.add_argument("--json", action="store_true", help="as JSON, one object per line")


def run(words: argparse.Namespace, settings: "Settings") -> int:
    """Run the command; return the exit code."""
    from gateway.cli.commands import agents

    if words.action == "install":
        return agents.install(settings, words.agent, as_json=words.json)
    if words.action == "doctor":
        return agents.doctor(settings, words.agent, as_json=words.json)
    return agents.list_agents(settings, as_json=words.json)
