"""The arguments of `holdfast init`."""

import argparse

_INIT = """\
Write a file of settings for this machine: ./holdfast.toml, or the one that HOLDFAST_CONFIG names. It asks for
the places of conversations and workspaces and for the address to listen on. With --yes it asks nothing and uses files
beside it where no option names a place. Without an option, a variable of the environment counts: use HOLDFAST_STORE and
the AWS_* keys to give secrets without being asked. Missing secrets are made in the data directory. The file and the
secrets are readable by their owner alone.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    raw = argparse.RawDescriptionHelpFormatter
    init = commands.add_parser(
        "init", help="write a file of settings for this machine", description=_INIT, formatter_class=raw
    )
    init.add_argument("--yes", action="store_true", help="do not ask")
    init.add_argument("--force", action="store_true", help="replace an existing file")
    init.add_argument("--data-dir", metavar="DIR", help="the directory for all data (default: .holdfast)")
    init.add_argument("--store", metavar="URL", help="the store of conversations, without password: postgresql://...")
    init.add_argument("--objects", metavar="URL", help="the store of workspaces: s3://bucket/prefix?...")
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
