"""`holdfast serve`: the gateway, from the lock on its data directory to its exit code."""

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import shlex
import time
from contextlib import AbstractContextManager

import uvloop

from gateway.app import House, build_house
from gateway.auth.links import Person
from gateway.cli.client.login import whoever
from gateway.cli.console.output import as_typed, complain, say
from gateway.config.data_dir import DatabaseBusy, DatabaseLock, DataDirBusy, DataDirLock
from gateway.config.settings import Settings, resolve_secrets
from gateway.config.sources import ENVIRONMENT, Source
from gateway.config.version import version
from gateway.protocol.errors import ApiError
from gateway.server.garbage import collect_by_schedule, collect_rarely, leave_alone
from gateway.server.server import CannotListen
from gateway.server.server import serve as serve_app
from gateway.telemetry.telemetry import configure_logging
from persistence.errors import StoreBroken

ROOM_SECONDS = 1.0  # between two looks at a full disk

M_MMAP_THRESHOLD = -3  # as malloc.h has it
LARGE_BLOCK_BYTES = 256 << 10


def serve(settings: Settings) -> int:
    os.umask(0o077)  # all files written from here on belong to the owner alone
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # secrets live in memory, and memory stays here
    keep_descriptors()
    return_large_blocks()
    collect_rarely()
    configure_logging(settings.log_level)
    try:
        with (
            DataDirLock(settings.data_dir) as lock,
            store_lock(settings),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            return _serve_with_room(settings, lock, runner)
    except DatabaseBusy as busy:
        complain(f"{busy}; stop it, or unset HOLDFAST_STORE to use the database in {settings.data_dir}")
    except DataDirBusy as busy:
        complain(f"{busy}; stop it, or set HOLDFAST_DATA_DIR to another directory")
    except CannotListen as error:
        complain(str(error))
    return 1


def store_lock(settings: Settings) -> AbstractContextManager[object]:
    """The lock of the database, if that is a file."""
    if settings.store.kind != "sqlite":
        return contextlib.nullcontext()
    return DatabaseLock(settings.store.path, settings.data_dir)


def _serve_with_room(settings: Settings, lock: DataDirLock, runner: asyncio.Runner) -> int:
    """A full disk is reported once and waited for: making room is enough, and no restart is needed."""
    told = ""
    while True:
        house = build_house(settings, resolve_secrets(settings))
        code = runner.run(_serve(settings, lock, house))
        if not house.no_room:
            break
        if house.problem != told:
            told = house.problem or ""
            complain(f"{told}. The disk is full: this start goes on as soon as there is room")
        time.sleep(ROOM_SECONDS)
    broken = house.door.failure if isinstance(house.door.failure, StoreBroken) else None
    if problem := house.problem or (str(broken) if broken else None):
        complain(problem)
        return 1
    return code


async def _serve(settings: Settings, lock: DataDirLock, house: House) -> int:
    house.mend_lock = lock.mend

    def on_ready(address: str) -> None:
        house.address = reachable(address)
        lock.note_address(house.address)
        leave_alone()
        _welcome(settings, house)

    logging.getLogger("uvicorn.error").disabled = False  # as it was before a start that failed
    collecting = asyncio.create_task(collect_by_schedule(), name="collect garbage")
    try:
        return await serve_app(house.app, settings, door=house.door, drain=house.drain, on_ready=on_ready)
    finally:
        collecting.cancel()


def keep_descriptors() -> None:
    """Descriptors that this process's starter left open stay here: a sandbox is started by a plain spawn, would inherit
    them, and would hold the starter's pipes open long after the gateway has gone."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
                os.set_inheritable(int(name), False)


def return_large_blocks() -> None:
    """The memory of a long message goes back to the system when it is freed. glibc would keep it: with each large block
    that is freed it raises the size from which blocks are mapped on their own, up to 32 MiB. Other C libraries have no
    such setting."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def _welcome(settings: Settings, house: House) -> None:
    """The first line is all that a newcomer needs; programs read the address from its beginning."""
    name, address = whoever()
    try:
        link, _ = house.signin.link(Person(name, address), house.address)
    except ApiError:  # tokens are others' to sign, or the login is no name for a user
        say(f"Holdfast {version()} is at {house.address}/")
    else:
        say(f"Holdfast {version()}: open {link}")
        say(f"  you are {name} there; the link is good once, for 10 minutes. Another: {typed(settings, 'url')}")
    if not house.has_page:
        say("  it has no page yet:      make page, in a checkout; or install the wheel")
    say(f"  talk to a new session:   {typed(settings, 'chat')}")
    say(f"  sandboxes:               {house.fleets.name}, {house.fleets.level}")
    say("  stop:                    Ctrl-C (sessions are kept)")


def reachable(address: str) -> str:
    """The address by which this machine's own programs reach a gateway that listens everywhere."""
    return address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def typed(settings: Settings, command: str) -> str:
    """`holdfast COMMAND` as it has to be typed here: with the environment's variables for the file and the data
    directory."""
    chosen = {"HOLDFAST_CONFIG": settings.config, "HOLDFAST_DATA_DIR": settings.data_dir}
    prefix = [
        f"{name}={shlex.quote(str(value))} "
        for name, value in chosen.items()
        if settings.sources.get(name, Source()).kind == ENVIRONMENT
    ]
    return "".join(prefix) + as_typed(command)
