"""What the proxy adds to a model's answer: the time to its first token, and CPU for streams under way, beside the same
requests without a proxy.

The model is a server here that answers in events; it speaks plain HTTP, so that what is measured is the proxy and not
TLS. Requests by the proxy and without take turns. Streams are opened by the proxy all at once, each with an event every
20 ms; the CPU is the proxy's alone, and says how many such streams one core carries.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from bench.figures import Figure
from bench.load import quantile
from bench.processes import cpu_seconds
from bench.rounds import OURS, Measure, Rounds, take_turns
from gateway.egress.model_gateway import ModelGateway
from gateway.egress.model_settings import ProviderKey
from gateway.egress.providers import read_providers
from tests.gateway.egress.origins import KeptKeys
from tests.gateway.egress.proxies import Proxied, proxied

DIRECT = "no proxy"
P50, P95 = "first token p50", "first token p95"
EVENT = b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"word "}}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
BODY = json.dumps({"model": "holdfast-trial", "max_tokens": 100, "stream": True, "messages": []}).encode()
PAUSE = 0.02


class EventModel:
    """Answers with so many events."""

    def __init__(self) -> None:
        self.events = 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(len(BODY))
            writer.write(HEAD + EVENT)
            for _ in range(self.events - 1):
                await asyncio.sleep(PAUSE)
                writer.write(EVENT)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def run(*, quick: bool) -> list[Figure]:
    model = EventModel()
    server = await asyncio.start_server(model.serve, "127.0.0.2", 0, backlog=1024)
    port = int(server.sockets[0].getsockname()[1])
    with TemporaryDirectory(prefix="holdfast-bench-") as name:
        async with proxied(Path(name), connections=1024) as proxy:
            near = _session(proxy, port)
            found = await first_tokens(port, near, rounds=3 if quick else 10, times=50 if quick else 200)
            streams = await streams_a_core(proxy, model, near, count=50 if quick else 200, seconds=3 if quick else 10)
    server.close()
    added = [1000 * (median(found.of(step, OURS)) - median(found.of(step, DIRECT))) for step in (P50, P95)]
    notes = (f"{added[0]:.2f} ms added, {streams:.0f} streams a core", f"{added[1]:.2f} ms added")
    return [
        found.figure(step, DIRECT, "s", less_is_better=True, note=note)
        for step, note in zip((P50, P95), notes, strict=True)
    ]


def _session(proxy: Proxied, port: int) -> int:
    providers = read_providers(f'[anthropic]\norigin = "http://127.0.0.2:{port}"\n'.encode())
    keys = KeptKeys({("user of bench", "anthropic"): ProviderKey("key")})
    models = ModelGateway(proxy.keeper, providers, keys, journal=proxy.run / "spent.journal")
    return proxy.session("bench", "none", routes=models.routes("bench", "user of bench"))


async def first_tokens(port: int, near: int, *, rounds: int, times: int) -> Rounds:
    places = {OURS: ("127.0.0.1", near, "/anthropic/v1/messages"), DIRECT: ("127.0.0.2", port, "/v1/messages")}

    def slices(name: str) -> Measure:
        async def measure() -> Mapping[str, float]:
            took = sorted([await _first(*places[name]) for _ in range(times)])
            return {P50: quantile(took, 0.5), P95: quantile(took, 0.95)}

        return measure

    return await take_turns(rounds, [{name: slices(name) for name in places}], Random())


async def _first(host: str, port: int, path: str) -> float:
    began = time.perf_counter()
    reader, writer = await _asked(host, port, path)
    await reader.readuntil(b"data: ")
    took = time.perf_counter() - began
    await reader.read()
    writer.close()
    return took


async def _asked(host: str, port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
    return reader, writer


async def streams_a_core(proxy: Proxied, model: EventModel, near: int, *, count: int, seconds: int) -> float:
    model.events = int(seconds / PAUSE)
    pid = await proxy.ready()
    open_streams = [await _asked("127.0.0.1", near, "/anthropic/v1/messages") for _ in range(count)]
    for reader, _ in open_streams:
        await reader.readuntil(b"data: ")
    before, began = cpu_seconds(pid), time.perf_counter()
    await asyncio.gather(*(reader.read() for reader, _ in open_streams))
    used, took = cpu_seconds(pid) - before, time.perf_counter() - began
    for _, writer in open_streams:
        writer.close()
    return count * took / used
