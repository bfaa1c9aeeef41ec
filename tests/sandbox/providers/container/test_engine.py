"""The engine's API, on real engines, and on one that lies."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandbox.ports.sandbox import SandboxUnavailable
from sandbox.providers.container import engine as engine_module
from sandbox.providers.container.engine import Engine, EngineRefused, TooLong
from tests.support.engine import DockerEngine, PodmanEngine
from tests.support.waiting import until

SILENT = {"NetworkMode": "none", "LogConfig": {"Type": "none"}}
AnyEngine = DockerEngine | PodmanEngine


def container(image: str, *command: str, **labels: str) -> dict[str, Any]:
    return {"Image": image, "Cmd": command, "Labels": labels, "NetworkDisabled": True, "HostConfig": SILENT}


@pytest.fixture
def engine(any_engine: AnyEngine) -> Engine:
    return Engine(f"unix://{any_engine.socket}")


@pytest.fixture
def name(any_engine: AnyEngine) -> Iterator[str]:
    """Of a container that is removed at the end."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    with contextlib.suppress(AssertionError):
        any_engine.client("rm", "--force", name)


async def test_a_container_lives_and_ends(engine: Engine, any_engine: AnyEngine, name: str) -> None:
    assert await engine.inspect(name) is None
    made, warnings = await engine.create(name, container(any_engine.image, "sleep", "600", of=name))
    assert warnings == []
    assert await engine.list({"of": name}) == []
    assert [each["Id"] for each in await engine.list({"of": name}, stopped=True)] == [made]
    assert not await engine.kill(made), "it does not run yet"
    await engine.start(name)
    await engine.start(name)
    with pytest.raises(TimeoutError):
        await engine.wait(made, 0.2)
    assert [each["Labels"]["of"] for each in await engine.list({"of": name})] == [name]
    assert await engine.list({"of": "another"}) == []
    waiting = asyncio.create_task(engine.wait(made, 60))
    assert await engine.kill(made)
    assert await waiting == 137
    found = await engine.inspect(name)
    assert found is not None
    assert not found["State"]["Running"]
    await engine.stop(name, 1)
    await asyncio.gather(engine.remove(name), engine.remove(name))
    await engine.remove(name)
    await engine.stop(name, 1)
    assert not await engine.kill(name)
    assert await engine.inspect(name) is None


async def test_what_the_engine_refuses_is_told_in_its_own_words(
    engine: Engine, any_engine: AnyEngine, name: str
) -> None:
    with pytest.raises(EngineRefused, match=r"(?i)no such image") as refused:
        await engine.create(name, container("holdfast-test/nothing:1", "true"))
    assert refused.value.status == 404
    await engine.create(name, container(any_engine.image, "no-such-program"))
    with pytest.raises(EngineRefused, match="no-such-program"):
        await engine.start(name)
    with pytest.raises(EngineRefused, match=name):
        await engine.create(name, container(any_engine.image, "true"))
    assert await engine.image("holdfast-test/nothing:1") is None
    image = await engine.image(any_engine.image)
    assert image is not None
    assert image["Architecture"]


async def test_a_file_of_an_image_is_read_without_running_anything(
    engine: Engine, any_engine: AnyEngine, name: str
) -> None:
    made, _ = await engine.create(name, container(any_engine.image, "true"))
    content = await engine.read_file(made, "/bin/busybox", 16 << 20)
    assert content is not None
    assert content.startswith(b"\x7fELF")
    assert await engine.read_file(made, "/etc/nothing", 1 << 20) is None
    assert await engine.read_file(made, "/bin", 64 << 20) is None, "a directory"
    with pytest.raises(TooLong, match="/bin/busybox is longer than 1000 bytes"):
        await engine.read_file(made, "/bin/busybox", 1000)
    assert await engine.has_file(made, "/bin")
    assert not await engine.has_file(made, "/etc/nothing")


async def test_events_come_as_they_happen(docker_engine: DockerEngine) -> None:
    engine = Engine(f"unix://{docker_engine.socket}")
    name, seen = f"test-{uuid.uuid4().hex}", list[str]()

    async def listen() -> None:
        async for event in engine.events({"of": name}):
            seen.append(event["Action"])

    listening = asyncio.create_task(listen())
    made = ""
    while not seen:  # it is not told when the engine begins to listen
        if made:
            await engine.remove(made)
        made, _ = await engine.create(name, container(docker_engine.image, "true", of=name))
        with contextlib.suppress(AssertionError):
            await until(lambda: seen, within=0.5)
    await engine.start(made)
    await until(lambda: "die" in seen)
    await engine.remove(made)
    await until(lambda: seen[-1] == "destroy")
    listening.cancel()
    await asyncio.wait({listening})


async def test_an_image_that_cannot_be_had_is_told_why(engine: Engine) -> None:
    with pytest.raises(EngineRefused, match=r"127\.0\.0\.1"):
        assert [message async for message in engine.pull("127.0.0.1:9/nothing:1")] == []


async def test_an_engine_that_is_away_is_unavailable_and_comes_back(tmp_path: Path) -> None:
    engine = Engine(f"unix://{tmp_path}/nobody.sock")
    asks: list[Callable[[], Awaitable[object]]] = [
        engine.info,
        lambda: engine.inspect("x"),
        lambda: engine.list({}),
        lambda: engine.start("x"),
        lambda: engine.remove("x"),
        lambda: anext(engine.events({})),
    ]
    for ask in asks:
        with pytest.raises(SandboxUnavailable, match=r"nobody\.sock does not answer: No such file"):
            await ask()
    async with _liar(tmp_path / "nobody.sock", lambda path: _json({"Id": "x"})):
        assert await engine.inspect("x") == {"Id": "x"}
    with pytest.raises(SandboxUnavailable):
        await engine.inspect("x")


def test_only_an_engine_of_this_host_has_an_address() -> None:
    for address in ("tcp://10.0.0.1:2375", "ssh://host", "/run/docker.sock", "unix://relative", ""):
        with pytest.raises(ValueError, match=r"unix:///run/docker\.sock"):
            Engine(address)


VERSION = {"ApiVersion": "1.41", "MinAPIVersion": "1.24"}
Answer = Callable[[str], bytes | None]


def _json(value: Any, status: str = "200 OK") -> bytes:
    content = json.dumps(value).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(content), content)


def _said(answer: bytes, path: str) -> bytes:
    return answer


@contextlib.asynccontextmanager
async def _liar(path: Path, answer: Answer) -> AsyncIterator[list[int]]:
    """An engine that tells its version and then answers this; None is silence. Yields how much it could send."""
    sent = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asked = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
            said = _json(VERSION) if asked == "/version" else answer(asked)
            if said is None:
                await reader.read()
            else:
                writer.write(said)
                await writer.drain()
                while said.endswith(b"..."):  # without end
                    writer.write(b" " * 65536)
                    await writer.drain()
                    sent[0] += 65536
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield sent
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "no answer in time"),
        (b"", "closed"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nX: ...", "no end"),
        (b"HTTP/1.1 200 OK\r\n\r\n...", "too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n...", "too long"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<!-", "closed"),
        (_json("text"), "not an object"),
        (_json({"Identity": "x"}), "names nothing"),
        (_json({"Id": 7}), "names nothing"),
    ],
)
async def test_an_engine_that_lies_is_bounded_in_time_and_size(
    answer: bytes | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "MAX_ANSWER", 1 << 20)
    # Short for the one that says nothing; all others end by themselves.
    engine = Engine(f"unix://{tmp_path}/liar.sock", timeout=0.5 if answer is None else 60)
    async with _liar(tmp_path / "liar.sock", lambda path: answer) as sent:
        with pytest.raises(SandboxUnavailable, match=why):
            await engine.inspect("x")
        assert sent[0] < 64 << 20


async def test_a_stream_that_lies_ends(tmp_path: Path) -> None:
    engine = Engine(f"unix://{tmp_path}/liar.sock")
    for answer, why in (
        (b'HTTP/1.1 200 OK\r\n\r\n{"a": ...', "without end"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]\n", "object"),
    ):
        async with _liar(tmp_path / "liar.sock", partial(_said, answer)):
            with pytest.raises(SandboxUnavailable, match=why):
                await anext(engine.events({}))
    async with _liar(tmp_path / "liar.sock", partial(_said, _json({"message": "no\nevents"}, "500 Oh"))):
        with pytest.raises(EngineRefused, match="refused: no events"):
            await anext(engine.events({}))


@pytest.mark.parametrize(("newest", "oldest"), [("1.24", "1.12"), ("1.80", "1.70")])
async def test_an_engine_of_another_age_is_not_spoken_to(newest: str, oldest: str, tmp_path: Path) -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
        writer.write(_json({"ApiVersion": newest, "MinAPIVersion": oldest}))
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "old.sock")
    with pytest.raises(SandboxUnavailable, match=r"1\.41 to 1\.51"):
        await Engine(f"unix://{tmp_path}/old.sock").info()
    assert asked == ["/version"]
    server.close()
    await server.wait_closed()
