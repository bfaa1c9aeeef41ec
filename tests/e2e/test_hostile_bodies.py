"""Requests that were bombs for others' servers: refused or ignored by the real gateway, at no cost."""

from pathlib import Path

import httpx
import pytest

from tests.support.gateway import Gateway, GatewayByCommandLine

ALLOWED_GROWTH = 16 << 20
PAGE = 4096


def resident(gateway: Gateway) -> int:
    return int(Path(f"/proc/{gateway.pid}/statm").read_text().split()[1]) * PAGE


RANGES = {"Range": "bytes=" + ",".join(f"{n}-{n}" for n in range(5000))}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "allowed"),
    [
        pytest.param("GET", "/", RANGES, b"", {200, 400, 416, 431}, id="5,000 ranges of a page"),
        pytest.param("GET", "/logs/victim", RANGES, b"", {200, 400, 416, 431}, id="5,000 ranges of a log"),
        pytest.param("POST", "/api/sandboxes/bomb", FORM, b"a=&" * 300_000, {400, 415}, id="300,000 form fields"),
        pytest.param(
            "POST", "/api/sandboxes/bomb", FORM, b"a=" + b"%41" * 340_000, {400, 415}, id="a field of escapes"
        ),
        pytest.param("GET", "/health", {"X-Long": "x" * 70_000}, b"", {431}, id="a header beyond 64 KiB"),
    ],
)
async def test_it_costs_nothing(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], body: bytes, allowed: set[int]
) -> None:
    async with GatewayByCommandLine(tmp_path / "data") as gateway, gateway.http() as client:
        await gateway.create("victim")
        before = resident(gateway)
        for _ in range(5):
            answer = await client.request(method, path, headers=headers, content=body)
            assert answer.status_code in allowed, answer.text[:200]
        assert resident(gateway) - before < ALLOWED_GROWTH
        assert (await client.get("/health")).status_code == httpx.codes.OK
        assert (await client.get("/api/sandboxes/bomb")).status_code == httpx.codes.NOT_FOUND
