"""`holdfast migrate`: the store's schema, before the gateway needs it."""

import asyncio

from gateway.app import make_store
from gateway.commands.terminal import complain, say
from gateway.datadir import DataDirBusy, DataDirLock
from gateway.settings import Settings
from persistence.errors import CannotOpen
from persistence.migrations import shipped


def migrate(settings: Settings) -> int:
    """Refused while a gateway runs: it would find its tables changed under it."""
    try:
        with DataDirLock(settings.data_dir):
            asyncio.run(_open_once(settings))
    except DataDirBusy as busy:
        complain(f"{busy}; stop it first")
        return 1
    except CannotOpen as error:
        complain(str(error))
        return 1
    say(f"the store {settings.store_path} has schema {shipped('sqlite')[-1].number}, the newest this version knows")
    return 0


async def _open_once(settings: Settings) -> None:
    async with make_store(settings):
        pass
