"""The server that the tests start themselves: what other tests rely on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg

from tests.support.postgres import PostgresServer, execute
from tests.support.waiting import blocking_until

STARTS_ONE = """
import sys
from tests.support.postgres import PostgresServer
with PostgresServer() as server:
    print(server._process.pid, server._directory, flush=True)
    sys.stdin.read()
"""


def test_it_does_not_outlive_whoever_started_it() -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    assert starter.stdin is not None
    pid, directory = starter.stdout.readline().split()
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    starter.stdin.close()
    note = Path(directory.decode(), "data", "postmaster.pid")
    blocking_until(lambda: not note.exists(), f"the end of {pid.decode()}")
    subprocess.run(["rm", "-r", directory], check=True)


async def test_it_keeps_what_was_committed_when_it_is_killed_and_flushes_to_the_disk(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database()
    execute(url, "CREATE TABLE kept (a int)", "INSERT INTO kept VALUES (1)")
    postgres_server.kill()
    postgres_server.start()
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT a FROM kept") == 1
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await connection.fetchval(f"SHOW {setting}") == "on"
    finally:
        await connection.close()
