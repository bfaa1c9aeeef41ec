"""The arguments of `holdfast backup` and `holdfast restore`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config.settings import Settings

COMMANDS = ("backup", "restore")
_BACKUP = """\
Copy the gateway's data on this machine to DIR, which must be new or empty: conversations, workspaces, the disks of
sandboxes, secrets, the spool. The gateway may run meanwhile: every message that was acknowledged and every file that
was synced before the backup began is in it. Data in Postgres or in a bucket is listed, not copied. DIR holds secrets
and conversations: protect it like those.
"""
_RESTORE = """\
Restore a backup into the data directory that the settings name, or into another one. Nothing is overwritten: the
directory must be new or empty, and no gateway may use it. A backup that was cut off is refused.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    backup = commands.add_parser("backup", help="copy this gateway's data, while it runs", description=_BACKUP)
    backup.add_argument("directory", metavar="DIR", type=Path, help="the directory for the backup, new or empty")
    restore = commands.add_parser(
        "restore", help="restore a backup into a new or empty directory", description=_RESTORE
    )
    restore.add_argument("directory", metavar="DIR", type=Path, help="the backup")
    restore.add_argument(
        "--into", metavar="DATA", type=Path, help="the data directory to make (default: HOLDFAST_DATA_DIR)"
    )
    for command in (backup, restore):
        command.add_argument("--json", action="store_true", help="one JSON object instead of lines")


def run(words: argparse.Namespace, settings: "Settings") -> int:
    from gateway.cli.commands.backup import backup, restore

    if words.command == "backup":
        return backup(settings, words.directory, as_json=words.json)
    return restore(settings, words.directory, into=words.into, as_json=words.json)
