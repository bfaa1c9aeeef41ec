"""Opening a database: its schema, who may, what is said when it cannot be used, and when it is away."""

import asyncio
from pathlib import Path

import asyncpg
import orjson
import pytest
from structlog.testing import capture_logs

from persistence.errors import CannotOpen, StoreUnavailable
from persistence.migrations import shipped
from persistence.postgres.store import PostgresStore
from persistence.record import Session, Stored
from tests.support.postgres import PASSWORD, PostgresServer, execute
from tests.support.records import said
from tests.support.tls import PostgresTls, self_signed


async def test_eight_who_start_at_once_migrate_once(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(8)]
    await asyncio.gather(*(store.__aenter__() for store in stores))
    try:
        await asyncio.gather(*(store.create(Session(f"s{n}", "ann", 1.0)) for n, store in enumerate(stores)))
        assert len(await stores[0].sessions()) == 8
    finally:
        await asyncio.gather(*(store.__aexit__(None, None, None) for store in stores))
    connection = await asyncpg.connect(postgres_url)
    applied = [row[0] for row in await connection.fetch("SELECT number FROM schema_version ORDER BY number")]
    await connection.close()
    assert applied == [migration.number for migration in shipped("postgres")] == list(range(1, len(applied) + 1))


async def test_a_migration_that_fails_leaves_nothing_of_itself(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE readers (something_else int)")
    with pytest.raises(CannotOpen, match='"readers" already exists'):
        await PostgresStore(postgres_url).__aenter__()
    execute(postgres_url, "DROP TABLE readers")
    async with PostgresStore(postgres_url) as store:
        assert await store.sessions() == []


async def test_a_database_of_the_version_before_lists_what_it_holds(postgres_url: str) -> None:
    """Also a `start` as long as that version took."""
    spec = b'{"title":"old","start":{"x":"%s"}}' % (b"s" * (1 << 20))
    async with PostgresStore(postgres_url) as store:
        await store.create(Session("s", "ann", 1.0, spec))
    later = (
        "DROP FUNCTION brief_of; DROP TABLE installation, credentials, user_configs; DROP SEQUENCE credential_changes"
    )
    execute(postgres_url, f"{later}; DELETE FROM schema_version WHERE number >= 4")
    async with PostgresStore(postgres_url) as store:
        (listed,) = await store.sessions("ann")
        kept = await store.find("s")
    assert orjson.loads(listed.spec) == {"title": "old"}
    assert kept is not None
    assert kept.spec == spec


async def test_a_database_from_the_future_is_refused_with_advice(postgres_url: str) -> None:
    async with PostgresStore(postgres_url):
        pass
    execute(postgres_url, "INSERT INTO schema_version VALUES (99, 'from_the_future')")
    with pytest.raises(CannotOpen, match=r"schema 99, this Holdfast knows up to \d+: start the newer"):
        await PostgresStore(postgres_url).__aenter__()


@pytest.mark.parametrize(
    ("database", "login", "words"),
    [
        ("postgres", {"password": "wrong-secret"}, "Check the user and the password"),
        ("postgres", {"user": "nobody"}, "Check the user and the password"),
        ("nowhere", {}, "Create the database, or check its name"),
        ("postgres?sslmode=require", {}, "Switch TLS on in the server, or check sslmode"),
        ("postgres?sslmode=verify-full&sslrootcert=/nowhere.crt", {}, "Check sslrootcert"),
        ("postgres?sslmode=perhaps", {}, "Check HOLDFAST_STORE"),
    ],
    ids=["password", "user", "database", "no TLS", "no root certificate", "no such mode"],
)
async def test_what_an_operator_must_mend_is_said_at_once_and_without_the_password(
    postgres_server: PostgresServer, database: str, login: dict[str, str], words: str
) -> None:
    url = postgres_server.url(database, **login)
    with pytest.raises(CannotOpen, match=words) as refused:
        await PostgresStore(url).__aenter__()
    assert "secret" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


async def test_a_url_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(CannotOpen, match="cannot be read") as refused:
        await PostgresStore("postgresql://ann:top/secret@host:port/name").__aenter__()
    assert "secret" not in str(refused.value)


async def test_a_certificate_is_checked_as_the_url_says(postgres_server: PostgresServer, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    stranger, _ = self_signed(tmp_path, "127.0.0.2")
    url = postgres_server.create_database()
    async with PostgresTls(postgres_server.port, certificate, key) as tls:
        url = url.replace(f":{postgres_server.port}", f":{tls.port}")
        for how in ("require", f"verify-full&sslrootcert={certificate}"):
            async with PostgresStore(f"{url}?sslmode={how}") as store:
                await store.create(Session("s", "ann", 1.0))
                assert isinstance((await store.commit([said("s", 1)]))[0], Stored)
        assert tls.encrypted >= 4
        with pytest.raises(CannotOpen, match="Check sslrootcert"):
            await PostgresStore(f"{url}?sslmode=verify-full&sslrootcert={stranger}").__aenter__()


async def test_a_database_that_is_away_is_migrated_when_it_comes(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    postgres_server.stop()
    try:
        with capture_logs() as logs:
            async with PostgresStore(url) as store:
                for ask in (store.sessions(), store.commit([said("s", 1)]), store.load("s")):
                    with pytest.raises(StoreUnavailable):
                        await ask
                postgres_server.start()
                await store.create(Session("s", "ann", 1.0))
                assert await store.commit([said("s", 1)]) == [Stored(1)]
        assert [entry["event"] for entry in logs].count("store.away") == 1
        assert PASSWORD not in str(logs)
    finally:
        postgres_server.restart()


async def test_a_store_that_is_not_open_says_so_and_stays_closed(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    for _ in range(2):
        for ask in (store.sessions(), store.commit([said("s", 1)])):
            with pytest.raises(StoreUnavailable, match="not open"):
                await ask
        async with store:
            assert await store.sessions() == []
