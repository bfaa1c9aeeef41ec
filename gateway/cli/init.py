"""The arguments of `holdfast init`."""

import argparse

_INIT = """\
Write a file of settings for this machine: ./holdfast.toml, or the one that HOLDFAST_CONFIG names. Asks where
conversations and workspaces are kept and who can reach the gateway; with --yes it asks nothing, and what is not said is
kept in files beside it. What the environment says is the answer where no option does: HOLDFAST_STORE and the AWS_*
keys are the way to give a secret without being asked. Secrets that are missing are made in the data directory. The file
and they are readable by their owner alone.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    raw = argparse.RawDescriptionHelpFormatter
    init = commands.add_parser(
        "init", help="write a file of settings for this machine", description=_INIT, formatter_class=raw
    )
    init.add_argument("--yes", action="store_true", help="do not ask")
    init.add_argument("--force", action="store_true", help="replace the file that is there")
    init.add_argument("--data-dir", metavar="DIR", help="where everything is kept (default: .holdfast)")
    init.add_argument("--store", metavar="URL", help="where conversations are kept, without password: postgresql://...")
    init.add_argument("--objects", metavar="URL", help="where workspaces are kept: s3://bucket/prefix?...")
    init.add_argument("--host", metavar="H", help="the address to listen on (default: 127.0.0.1)")
    init.add_argument("--port", metavar="P", help="the port to listen on (default: 8080)")


def run(words: argparse.Namespace) -> int:
    from gateway.cli.commands.init import InitOptions, init

    said = {
        "HOLDFAST_DATA_DIR": words.data_dir,
        "HOLDFAST_STORE": words.store,
        "HOLDFAST_OBJECTS": words.objects,
        "HOLDFAST_HOST": words.host,
        "HOLDFAST_PORT": words.port,
    }
    options = {name: text for name, text in said.items() if text is not None}
    return init(InitOptions(options, asks=not words.yes, replaces=words.force))
