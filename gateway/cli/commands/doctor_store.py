"""The findings of `holdfast doctor` about the store of conversations, and about the connection to it."""

import asyncio
import contextlib
import os
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gateway.config.data_dir import holder, is_database_held, is_serving
from gateway.config.settings import Settings
from gateway.wiring import spool_owner
from persistence.errors import CannotOpen
from persistence.migrations import missing, shipped

if TYPE_CHECKING:
    import asyncpg

State = Literal["ok", "warn", "fail"]
REACH_SECONDS = 5.0
SLOW_SYNC_SECONDS = 0.05
MIGRATE = "run `holdfast migrate` as the owner of the tables: `holdfast serve` does not start before"
# To create tables, and to change existing ones.
MAY_MIGRATE = """SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AND coalesce(
    (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('schema_version')), true)"""
WILL_NOT_START = "`holdfast serve` does not start until this is fixed"
GONE = "stop the gateway; it then writes its database to a file .rescued-<time>: put that, or a backup, in its place"
OTHER_STORE = "unset HOLDFAST_STORE to use the database in HOLDFAST_DATA_DIR, as after `holdfast restore --into`"
TABLES = ("sessions", "messages", "checkpoints", "dead_letters", "installation", "credentials", "user_configs")


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: State
    told: str
    advice: str = ""


def check_store(settings: Settings) -> list[Finding]:
    match settings.store.kind:
        case "postgresql":
            return [*asyncio.run(_postgres(settings)), _spool(settings)]
        case "http":
            return [_service(settings), _spool(settings)]
    return [_sqlite(settings)]


# -- SQLite -----------------------------------------------------------------------------------------------------------


def _sqlite(settings: Settings) -> Finding:
    path = settings.store.path
    own = settings.data_dir / "holdfast.db"
    if is_database_held(path) and holder(settings.data_dir) is None:
        return Finding("store", "fail", f"{path} is in use by the gateway of another data directory", OTHER_STORE)
    try:
        spool_owner.check(settings.spool_path, settings.store)
        if not path.exists():
            if is_serving(settings.data_dir):
                return Finding("store", "fail", f"a gateway runs, and {path} is gone", GONE)
            if rescued := sorted(path.parent.glob(f"{path.name}.rescued-*")):
                return Finding("store", "fail", f"{path} is gone; {rescued[-1]} has its content", WILL_NOT_START)
            return Finding("store", "ok", f"{path} does not exist yet; the first start makes it")
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            damage = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            return Finding("store", "fail", f"{path} is damaged: {damage}", "stop the gateway, restore a backup")
        due = missing(shipped("sqlite"), version)
    except CannotOpen as error:
        return Finding("store", "fail", str(error))
    if due:
        return Finding("store", "warn", f"{path} has schema {version}", "the next start migrates it; back it up first")
    if own.exists() and own.resolve() != path.resolve():
        return Finding("store", "warn", f"{path} is used, and not {own}, which exists as well", OTHER_STORE)
    return Finding("store", "ok", f"{path}, schema {version}")


# -- Postgres ---------------------------------------------------------------------------------------------------------


async def _postgres(settings: Settings) -> list[Finding]:
    import asyncpg

    from persistence.postgres.connections import check_files
    from persistence.postgres.errors import DRIVER_ERRORS

    shown = str(settings.store)
    try:
        check_files(settings.store.get_secret_value())
        db = await asyncpg.connect(settings.store.get_secret_value(), timeout=REACH_SECONDS, command_timeout=10)
        try:
            return [await _schema(db, shown), await _rights(db), await _tls(db, settings), await _durability(db)]
        finally:
            db.terminate()
    except CannotOpen as error:
        return [Finding("store", "fail", _without(settings, str(error)), WILL_NOT_START)]
    except DRIVER_ERRORS as error:
        return [_cannot_use(settings, error)]


def _cannot_use(settings: Settings, error: Exception) -> Finding:
    """As a start reacts: during an outage records wait in the spool, any other error ends the start."""
    from persistence.postgres.errors import cannot_open, reason

    shown = str(settings.store)
    if (hopeless := cannot_open(shown, error)) is not None:
        return Finding("store", "fail", _without(settings, str(hopeless)), WILL_NOT_START)
    told = f"{shown} cannot be used: {reason(error)}"
    advice = "the gateway starts without it and spools, if the spool can be written; check the address and the server"
    return Finding("store", "fail", _without(settings, told), advice)


def _without(settings: Settings, text: str) -> str:
    """A driver may quote its input."""
    for password in settings.store.passwords:
        text = text.replace(password, "***")
    return text


async def _schema(db: "asyncpg.Connection", shown: str) -> Finding:
    server = f"PostgreSQL {db.get_server_version().major}"
    if await db.fetchval("SELECT has_table_privilege(to_regclass('schema_version'), 'SELECT')") is False:
        return Finding("store", "fail", f"{shown} ({server}): this role may not read the schema's number", MIGRATE)
    found = await db.fetchval("SELECT to_regclass('schema_version') IS NOT NULL")
    version = await db.fetchval("SELECT coalesce(max(number), 0) FROM schema_version") if found else 0
    try:
        due = missing(shipped("postgres"), version)
    except CannotOpen as error:
        return Finding("store", "fail", str(error))
    told = f"{shown} ({server}) has schema {version}"
    if due and not await db.fetchval(MAY_MIGRATE):
        return Finding(
            "store", "fail", f"{told}, this version needs {due[-1].number}; this role may not migrate", MIGRATE
        )
    if due:
        return Finding("store", "warn", told, "run `holdfast migrate`, or let the next start do it")
    return Finding("store", "ok", f"{shown} ({server}), schema {version}")


async def _rights(db: "asyncpg.Connection") -> Finding:
    ((role, is_super, may_create),) = await db.fetch(
        """SELECT current_user, rolsuper, has_schema_privilege(current_schema(), 'CREATE')
        FROM pg_roles WHERE rolname = current_user"""
    )
    refused = [
        f"{right} on {table}"
        for table in TABLES
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
        if await db.fetchval("SELECT has_table_privilege(to_regclass($1), $2)", table, right) is False
    ]
    if refused:
        advice = "grant them: deploy/postgres-roles.sql makes a role with the right ones"
        return Finding("rights", "fail", f"role {role} lacks {', '.join(refused)}", advice)
    if is_super:
        return Finding("rights", "warn", f"role {role} is a superuser", "use the role of deploy/postgres-roles.sql")
    if may_create:
        advice = "enough for `holdfast migrate`; `serve` needs less: see deploy/postgres-roles.sql"
        return Finding("rights", "ok", f"role {role} may read, write and create tables", advice)
    return Finding("rights", "ok", f"role {role} may read and write, and may not create tables")


async def _tls(db: "asyncpg.Connection", settings: Settings) -> Finding:
    version = await db.fetchval("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl")
    if version:
        checked = "verify-full" in settings.store.get_secret_value()
        advice = "" if checked else "the server's name is not checked: add ?sslmode=verify-full&sslrootcert=..."
        return Finding("tls", "ok" if checked or settings.store.is_near else "warn", f"on, {version}", advice)
    if settings.store.is_near:
        return Finding("tls", "ok", "off; the server is on this machine")
    return Finding("tls", "warn", "off: passwords and conversations can be read on the way", "add ?sslmode=verify-full")


async def _durability(db: "asyncpg.Connection") -> Finding:
    lying = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if await _is_off(db, name)]
    if lying:
        told = f"the server runs with {', '.join(lying)} off: a power cut there loses acknowledged messages"
        return Finding("durable", "warn", told, "switch them on")
    return Finding("durable", "ok", "the server makes commits durable")


async def _is_off(db: "asyncpg.Connection", name: str) -> bool:
    return bool(await db.fetchval("SELECT current_setting($1) = 'off'", name))


# -- the HTTP sink and the spool --------------------------------------------------------------------------------------


def _service(settings: Settings) -> Finding:
    """Whether a server answers there. Any answer to a bare GET will do."""
    import httpx

    shown = str(settings.store)
    try:
        with (
            httpx.Client(timeout=REACH_SECONDS, follow_redirects=False, trust_env=False) as client,
            client.stream("GET", settings.store.get_secret_value()) as answer,
        ):
            status = answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        told = f"{shown} cannot be reached: {error or type(error).__name__}"
        return Finding("store", "fail", told, "the gateway starts without it and posts when it is back")
    if status >= 500:
        return Finding("store", "warn", f"{shown} answers with {status}", "look at the service's own log")
    return Finding("store", "ok", f"{shown} answers")


def _spool(settings: Settings) -> Finding:
    path = settings.spool_path
    if not path.exists() and is_serving(settings.data_dir):
        return Finding("spool", "fail", f"a gateway runs, and {path} is gone", GONE)
    try:
        spool_owner.check(path, settings.store)
        found = spool_owner.look(path)
    except CannotOpen as error:
        return Finding("spool", "fail", str(error))
    nearest = next(each for each in (path.parent.absolute(), *path.parent.absolute().parents) if each.exists())
    seconds = _fsync_seconds(nearest)
    waiting = f", {found.waiting} wait for the store" if found is not None and found.waiting else ""
    told = f"{path}, a write reaches the disk in {seconds * 1000:.1f} ms{waiting}"
    if found is not None and found.lost:
        advice = "`holdfast dead-letters list` lists them: read them with `show N`, then `drop N`"
        return Finding("spool", "warn", f"{told}; {found.lost} dead letters lie in it alone", advice)
    if seconds > SLOW_SYNC_SECONDS:
        return Finding("spool", "warn", told, "put HOLDFAST_DATA_DIR on a faster local disk")
    return Finding("spool", "ok", told)


def _fsync_seconds(place: Path) -> float:
    """The median of a few; raises OSError where no file can be written."""
    took = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(7):
            file.write(b"x" * 8192)
            began = time.perf_counter()
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return sorted(took)[len(took) // 2]
