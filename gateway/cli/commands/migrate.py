"""`holdfast migrate`: the store's schema, before the gateway needs it."""

import asyncio
from contextlib import nullcontext

from gateway.app import make_database
from gateway.cli.commands.serve import store_lock
from gateway.cli.console.output import complain, say
from gateway.config.data_dir import DataDirBusy, DataDirLock
from gateway.config.settings import Settings
from gateway.telemetry.telemetry import configure_logging
from gateway.wiring import spool_owner
from persistence.errors import CannotOpen, StoreUnavailable
from persistence.migrations import shipped


def migrate(settings: Settings) -> int:
    """Refused for a file while a gateway runs: its tables would change under it. A database has a lock of its own, and
    may have many gateways."""
    configure_logging("error")  # to stderr: a store's log lines are no result
    in_database = settings.store.kind == "postgresql"
    try:
        with nullcontext() if in_database else DataDirLock(settings.data_dir), store_lock(settings):
            spool_owner.check(settings.spool_path, settings.store)
            asyncio.run(_open_once(settings))
    except DataDirBusy as busy:
        complain(f"{busy}; stop it first")
        return 1
    except (CannotOpen, StoreUnavailable) as error:
        complain(str(error))
        return 1
    newest = shipped("postgres" if in_database else "sqlite")[-1].number
    say(f"{_what(settings)} has schema {newest}, the newest this version knows")
    return 0


def _what(settings: Settings) -> str:
    if settings.store.kind == "http":
        return f"the index {settings.spool_path}"
    return f"the store {settings.store.path if settings.store.kind == 'sqlite' else settings.store}"


async def _open_once(settings: Settings) -> None:
    """Raises StoreUnavailable if the store cannot be reached: the command must not report a schema that it has not
    seen."""
    async with make_database(settings) as store:
        await store.find("-")
