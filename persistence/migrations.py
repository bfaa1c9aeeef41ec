"""Numbered schema files: the existing ones, and those that a database still needs."""

import re
from collections.abc import Sequence
from importlib.resources import files

import msgspec

from persistence.errors import CannotOpen


class Migration(msgspec.Struct, frozen=True, gc=False):
    number: int
    name: str
    sql: str


def shipped(database: str) -> list[Migration]:
    """The migrations of `database` ("sqlite", ...) that came with this code, in order."""
    found = []
    for entry in files("persistence").joinpath("sql", database).iterdir():
        if match := re.fullmatch(r"(\d{3})_(\w+)\.sql", entry.name):
            found.append(Migration(int(match[1]), match[2], entry.read_text("utf-8")))
    return sorted(found, key=lambda migration: migration.number)


def missing(migrations: Sequence[Migration], version: int) -> list[Migration]:
    """The migrations that a database at `version` needs, in order. Raises CannotOpen if it is newer than this code."""
    newest = max((migration.number for migration in migrations), default=0)
    if version > newest:
        raise CannotOpen(
            f"the database has schema {version}, this Holdfast knows up to {newest}: "
            "start the newer Holdfast again, or restore the database's backup from before the upgrade"
        )
    return [migration for migration in migrations if migration.number > version]
