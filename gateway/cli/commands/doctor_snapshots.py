"""The finding of `holdfast doctor` about stored snapshots: whether every object that their generations name exists."""

import asyncio
import time
from collections.abc import AsyncIterator

from gateway.backup.databases import Known, kept, known, known_sessions
from gateway.cli.commands.doctor_store import REACH_SECONDS, Finding
from gateway.cli.console.progress import Bar
from gateway.config.settings import Settings
from sync.ports import ObjectsRefused, ObjectStore, ObjectsUnavailable
from sync.snapshots.presence import Presence

LOOK_SECONDS = 20.0  # then the rest is left out, and the finding says how much was checked
ENDS_SECONDS = 40.0  # for all of it, where the store answers slowly
NAMED = 3
ADVICE = "restore the object store from a backup; or, session by session, `resume` with {keep:true} or {empty:true}"


def check_snapshots(settings: Settings) -> Finding | list[Finding]:
    """No finding where a start makes the database, or where it cannot be read: another check reports that."""
    place = settings.store.path if settings.store.kind == "sqlite" else settings.spool_path
    if settings.store.kind != "postgresql" and not place.exists():
        return []
    try:
        return asyncio.run(asyncio.wait_for(_look(settings), ENDS_SECONDS))
    except (ObjectsUnavailable, ObjectsRefused, TimeoutError) as error:
        told = f"kept snapshots cannot be read: {str(error) or 'no answer'}"
        return Finding("snapshots", "warn", told)


async def _look(settings: Settings) -> Finding | list[Finding]:
    from gateway.wiring.objects import make_objects
    from sync.objects.files import FileObjects

    if settings.objects.kind == "file":  # looked at as it is: to open it would make it
        store: ObjectStore = FileObjects(settings.objects.path)
        return await _look_in(store, settings)
    async with make_objects(settings) as store:
        return await _look_in(store, settings)


async def _look_in(store: ObjectStore, settings: Settings) -> Finding | list[Finding]:
    presence, bar = Presence(store), Bar("snapshots")
    deadline = time.monotonic() + LOOK_SECONDS
    looked, lacking, late = 0, list[str](), False
    async for session in _sessions(settings):
        for each in kept(iter([session])):
            if late := time.monotonic() > deadline:
                break
            looked += 1
            bar.show(looked)
            if (told := await presence.lacking(each)) is not None:
                lacking.append(f"{each.session_id}: {told}")
        if late:
            break
    bar.clear()
    part = f"; there was time for {looked:,} sessions" if late else ""
    if lacking:
        named = "; ".join(lacking[:NAMED]) + ("; ..." if len(lacking) > NAMED else "")
        return Finding("snapshots", "fail", f"{len(lacking):,} of {looked:,} are not whole: {named}{part}", ADVICE)
    return Finding("snapshots", "ok", f"{looked:,} sessions, all that they name is there{part}") if looked else []


async def _sessions(settings: Settings) -> AsyncIterator[Known]:
    """The sessions, user by user; none if the store cannot be read."""
    if settings.store.kind != "postgresql":
        for each in known_sessions(settings.store.path if settings.store.kind == "sqlite" else settings.spool_path):
            yield each
        return
    import asyncpg

    from persistence.postgres.errors import DRIVER_ERRORS

    try:
        db = await asyncpg.connect(settings.store.get_secret_value(), timeout=REACH_SECONDS, command_timeout=10)
    except DRIVER_ERRORS:
        return
    try:
        async with db.transaction(readonly=True):
            async for row in db.cursor("SELECT id, user_id, state FROM sessions ORDER BY user_id"):
                yield known(row[0], row[1], bytes(row[2]))
    except DRIVER_ERRORS:
        return
    finally:
        db.terminate()
