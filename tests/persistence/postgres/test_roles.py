"""Who may do what in the database, with the very file that operators run."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from persistence.errors import CannotOpen
from persistence.postgres.store import PostgresStore
from persistence.record import Dead, Record, Session, Status, Stored, Write
from persistence.user_record import SealedCredential, UserConfig
from tests.support.postgres import execute
from tests.support.records import said

ROLES = Path(__file__).parents[3] / "deploy" / "postgres-roles.sql"
PASSWORD = "pass"


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:{PASSWORD}@{parts.hostname}:{parts.port}"))


@pytest.fixture
def url(postgres_url: str) -> str:
    """A database as an administrator leaves it."""
    passwords = [f"ALTER ROLE holdfast_{role} PASSWORD '{PASSWORD}'" for role in ("owner", "gateway")]
    execute(postgres_url, ROLES.read_text(), ROLES.read_text(), *passwords)
    return postgres_url


@pytest.fixture
async def gateway(url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(as_role(url, "holdfast_owner")):
        pass
    async with PostgresStore(as_role(url, "holdfast_gateway")) as gateway:
        yield gateway


@pytest.fixture
def reader(url: str) -> Iterator[str]:
    """A role of Ann's, who may read what is hers."""
    role = f"reader_{uuid4().hex}"
    execute(url, f"CREATE ROLE {role} LOGIN IN ROLE holdfast_reader PASSWORD '{PASSWORD}'")
    yield role
    execute(url, f"DROP ROLE {role}")


async def test_the_gateway_lives_with_its_few_rights(gateway: PostgresStore, url: str) -> None:
    await gateway.create(Session("s", "ann", 1.0))
    assert await gateway.load("s") is not None
    poison = Write("s", said("s", 2, "c\0").append, checkpoint=b"part", marks=((1, "expired"),))
    first, second = await gateway.commit([said("s", 1), poison])
    assert (first, type(second)) == (Stored(1), Dead)
    assert len(await gateway.messages("s")) == 2
    (letter,) = await gateway.dead_letters()
    assert await gateway.drop_dead_letter(letter.number)
    assert await gateway.trim("s", older_than=None, keep=0, below=9) == 2
    await gateway.purge("s")
    connection = await asyncpg.connect(as_role(url, "holdfast_gateway"))
    try:
        for statement in (
            "CREATE TABLE mine (a int)",
            "ALTER TABLE messages ADD COLUMN mine int",
            "DROP TABLE messages",
            "TRUNCATE messages",
            "DROP POLICY reader ON messages",
            "CREATE ROLE mine",
            "INSERT INTO readers VALUES ('holdfast_gateway', 'ann')",
            "INSERT INTO schema_version VALUES (99, 'mine')",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
        assert await connection.execute("DELETE FROM schema_version") == "DELETE 0"
    finally:
        await connection.close()


async def test_the_gateway_alone_sees_what_belongs_to_users(gateway: PostgresStore, url: str, reader: str) -> None:
    number = await gateway.users.put_credential(SealedCredential("ann", "openai", "api", "k", b"sealed", 1.0))
    assert await gateway.users.put_credential(
        SealedCredential("ann", "openai", "api", "k", b"again", 1.0), expected=number
    )
    await gateway.users.put_config(UserConfig("ann", b"{}", 1.0))
    assert len(await gateway.users.credentials("ann")) == 1
    execute(as_role(url, "holdfast_owner"), f"INSERT INTO readers VALUES ('{reader}', 'ann')")
    connection = await asyncpg.connect(as_role(url, reader))
    try:
        for table in ("credentials", "user_configs"):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"DELETE FROM {table}")
    finally:
        await connection.close()
    assert await gateway.users.delete_credential("ann", "openai")


async def test_a_gateway_without_the_right_to_migrate_says_who_should(url: str) -> None:
    with pytest.raises(CannotOpen, match="Run `holdfast migrate` as the owner"):
        await PostgresStore(as_role(url, "holdfast_gateway")).__aenter__()


async def test_a_reader_sees_the_conversations_of_its_user_and_of_nobody_else(
    gateway: PostgresStore, url: str, reader: str
) -> None:
    for session_id, user_id in (("a", "ann"), ("b", "bob")):
        await gateway.create(Session(session_id, user_id, 1.0))
    dead = [Write(s, said(s, 3, "c\0").append, checkpoint=b"part") for s in "ab"]
    await gateway.commit([said("a", 1), said("b", 1), said("a", 2), said("b", 2), *dead, Write("a", delivered=1)])
    execute(as_role(url, "holdfast_owner"), f"INSERT INTO readers VALUES ('{reader}', 'ann'), ('somebody', 'bob')")
    connection = await asyncpg.connect(as_role(url, reader))
    try:
        rows = await connection.fetch("SELECT * FROM conversation ORDER BY seq")
        assert [(row["session_id"], row["user_id"], row["seq"], row["status"]) for row in rows] == [
            ("a", "ann", 1, "delivered"),
            ("a", "ann", 2, "stored"),
            ("a", "ann", 3, "rejected"),
        ]
        assert (rows[0]["content"], rows[0]["metadata"], rows[0]["created_at"].timestamp()) == ('"hello"', None, 1.0)
        assert await connection.fetchval("SELECT array_agg(id) FROM sessions") == ["a"]
        for table, count in (("messages", 3), ("checkpoints", 1), ("dead_letters", 1), ("readers", 1)):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == count
        await _cannot_write(connection, reader)
        execute(as_role(url, "holdfast_owner"), "DELETE FROM readers")
        assert await connection.fetch("SELECT * FROM conversation") == []
    finally:
        await connection.close()


# What a browser may send, or a mistake may store; and its content and metadata as SQL readers see them.
PAYLOADS: list[tuple[bytes, str | None, str | None]] = [
    (rb'{"content":"a\u0000b","metadata":{"k":"\u0000"}}', r'"a\ufffdb"', r'{"k":"\ufffd"}'),
    (rb'{"content":"a\\u0000b"}', r'"a\\u0000b"', None),
    (rb'{"content":"\\\u0000\u0000\\\\u0000"}', r'"\\\ufffd\ufffd\\\\u0000"', None),
    (rb'{"\u0000":1,"content":{"\u0000":[ "\u0001\\" ]}}', r'{"\ufffd":[ "\u0001\\" ]}', None),
    (b'{"content":"\xc3\xbc \\u00fc \\" 1.50"}', r'"ü \u00fc \" 1.50"', None),
    (b'{"content":null,"metadata":1.50}', "null", "1.50"),
    (b'{"other":1}', None, None),
    (b'["content"]', None, None),
    (b'"content"', None, None),
    (b"7", None, None),
    (b"", None, None),
    (b"hello", None, None),
    (b'{"content":"\x01 \\u0000"}', None, None),
    (b'{"content":"\x00"}', None, None),
    (b'{"content":"\xff"}', None, None),
    (rb'{"content":"\ud800"}', None, None),
    (b'{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None, None),
]


async def test_no_payload_takes_the_view_away_from_its_readers(gateway: PostgresStore, url: str, reader: str) -> None:
    await gateway.create(Session("a", "ann", 1.0))
    await gateway.commit(
        [
            Write("a", Record("a", seq, f"c{seq}", "user", "message", payload, 1.0, Status.STORED))
            for seq, (payload, _, _) in enumerate(PAYLOADS, 1)
        ]
    )
    execute(as_role(url, "holdfast_owner"), f"INSERT INTO readers VALUES ('{reader}', 'ann')")
    connection = await asyncpg.connect(as_role(url, reader))
    try:
        rows = await connection.fetch("SELECT content, metadata FROM conversation ORDER BY seq")
        assert [tuple(row) for row in rows] == [(content, metadata) for _, content, metadata in PAYLOADS]
        assert await connection.fetchval("SELECT content #>> '{}' FROM conversation WHERE seq = 1") == "a\ufffdb"
        assert [record.payload for record in await gateway.messages("a")] == [payload for payload, _, _ in PAYLOADS]
    finally:
        await connection.close()


async def _cannot_write(connection: "asyncpg.Connection[Any]", reader: str) -> None:
    for statement in (
        "INSERT INTO messages SELECT * FROM messages",
        "UPDATE messages SET role = 'system'",
        "DELETE FROM sessions",
        "UPDATE conversation SET role = 'system'",
        f"INSERT INTO readers VALUES ('{reader}', 'bob')",
        "UPDATE readers SET user_id = 'bob'",
        "DELETE FROM readers",
        "SELECT nextval('fences')",
        "SET ROLE holdfast_gateway",
        "CREATE TABLE mine (a int)",
        "ALTER TABLE messages DISABLE ROW LEVEL SECURITY",
    ):
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute(statement)
    assert await connection.fetchval("SELECT array_agg(user_id) FROM readers") == ["ann"]


async def test_who_may_only_read_cannot_be_a_gateway(gateway: PostgresStore, url: str, reader: str) -> None:
    with pytest.raises(CannotOpen, match=r"this user may not write to .*: see deploy/postgres-roles.sql"):
        await PostgresStore(as_role(url, reader)).__aenter__()
