"""Holdfast under the load of bench/terminal.py: bench/gateway_under_test.py, whose terminals are the stand-in's."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jwt

from bench.processes import LOAD, UNDER_TEST, Process, Program
from bench.terminal_load import Target
from bench.terminal_pty import NATIVE

SECRET = "a-secret-that-guards-nothing-but-this-benchmark"
TERMINALS_PER_USER = 80  # of the 100 connections a user may have


@contextmanager
def holdfast(home: Path, terminals_socket: Path, terminals: int) -> Iterator[tuple[Process, Target]]:
    """A fresh gateway, and the requests of so many browsers: each has a session of its own."""
    env = {
        "HOLDFAST_DATA_DIR": str(home / "data"),
        "HOLDFAST_PORT": "0",
        "HOLDFAST_JWT_SECRET": SECRET,
        "HOLDFAST_CREATE_ON_ATTACH": "1",
        "HOLDFAST_MAX_CONNECTIONS_PER_ADDRESS": "100000",
    }
    with (
        Program("standin", core=LOAD, log=home / "agents.log") as agents,
        Program(
            "gateway_under_test",
            agents.port,
            str(terminals_socket),
            core=UNDER_TEST,
            log=home / "gateway.log",
            env=env,
        ) as gateway,
    ):
        requests = home / "requests"
        requests.write_text("".join(_request(number) for number in range(terminals)))
        yield gateway, Target(gateway.port, requests, None, (gateway.pid,))


def _request(number: int) -> str:
    user = f"u{number // TERMINALS_PER_USER}"
    claims = {"userId": user, "email": f"{user}@example.com", "exp": time.time() + 3600}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    return f"/terminal/s{number}\tAuthorization: Bearer {token}\tSec-WebSocket-Protocol: {NATIVE}\n"
