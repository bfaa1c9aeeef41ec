"""Holdfast under the load of bench/terminal.py: bench/gateway_under_test.py with the stand-in's terminals."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import jwt

from bench.processes import LOAD, UNDER_TEST, WIDE_LIMITS, Program
from bench.terminal_load import Contender, Target
from bench.terminal_pty import NATIVE

SECRET = "a-secret-that-guards-nothing-but-this-benchmark"
SERVICE = "a-service-that-serves-nobody-but-this-benchmark"
TERMINALS_PER_USER = 80  # of the 100 connections a user may have
WAKE_AT_ONCE = 64


@contextmanager
def holdfast(home: Path, terminals_socket: Path, terminals: int) -> Iterator[Contender]:
    """A fresh gateway, and the requests of `terminals` browsers. Each browser has its own sleeping session."""
    env = {
        "HOLDFAST_DATA_DIR": str(home / "data"),
        "HOLDFAST_PORT": "0",
        "HOLDFAST_JWT_SECRET": SECRET,
        "HOLDFAST_API_TOKEN": SERVICE,
        **WIDE_LIMITS,
    }
    log = home / "gateway.log"
    tokens = [_token(user) for user in range(terminals // TERMINALS_PER_USER + 1)]
    requests = home / "requests"
    requests.write_text(
        "".join(
            f"/terminal/s{number}\tAuthorization: Bearer {tokens[number // TERMINALS_PER_USER]}"
            f"\tSec-WebSocket-Protocol: {NATIVE}\n"
            for number in range(terminals)
        )
    )
    with (
        Program("standin", core=LOAD, log=home / "agents.log") as agents,
        Program("gateway_under_test", agents.port, str(terminals_socket), core=UNDER_TEST, log=log, env=env) as gateway,
    ):

        async def wake(first: int, count: int) -> None:
            """Create each session, which starts its sandbox. The agent's link is connected, and no message was sent."""
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{gateway.port}",
                headers={"Authorization": f"Bearer {SERVICE}"},
                timeout=60,
                trust_env=False,
            ) as client:
                numbers = iter(range(first, first + count))
                async with asyncio.TaskGroup() as group:
                    for _ in range(WAKE_AT_ONCE):
                        group.create_task(_wake_each(client, numbers))

        yield Contender(gateway, Target(gateway.port, requests, None, (gateway.pid,)), wake)


async def _wake_each(client: httpx.AsyncClient, numbers: Iterator[int]) -> None:
    for number in numbers:
        user = f"u{number // TERMINALS_PER_USER}"
        (await client.post(f"/api/sandboxes/s{number}", json={"userId": user})).raise_for_status()
        while (await client.get(f"/api/sandboxes/s{number}")).raise_for_status().json()["status"] != "running":  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _token(user: int) -> str:
    claims = {"userId": f"u{user}", "email": f"u{user}@example.com", "exp": time.time() + 3600}
    return jwt.encode(claims, SECRET, algorithm="HS256")
