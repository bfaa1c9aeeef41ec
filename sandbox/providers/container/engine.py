"""The part of the Docker Engine's API that sandboxes need, over the engine's socket on this host.

Every answer is bounded in size and time. No answer, or one that no engine would give, is SandboxUnavailable: then
nothing is known, and nothing may count as gone. A refusal is EngineRefused, with the engine's own text.
"""

import asyncio
import contextlib
import io
import json
import tarfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from sandbox.client.endpoint import UnixEndpoint
from sandbox.client.http_client import Connection, connect
from sandbox.ports.sandbox import SandboxFailed, SandboxUnavailable
from sandbox.providers.container.engine_answers import (
    BadAnswer,
    JsonLines,
    complaint,
    document,
    members,
    name_and_tag,
    negotiated,
    state,
    texts,
    trouble,
)

SCHEME = "unix://"
MAX_ANSWER = 16 << 20
ASK_SECONDS = 60.0
_HEADERS = {"Host": "engine", "User-Agent": "holdfast"}
_HEAD_BYTES = 64 << 10  # of an answer whose status alone is wanted
_GONE, _IN_USE = 404, 409


class EngineRefused(SandboxFailed):
    """The engine answered that it will not. `status` is HTTP's; 0: the error came inside of an answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the container engine refused: {reason}")
        self.status = status
        self.reason = reason


class TooLong(SandboxFailed):
    """A file or a list in an image exceeds its bound: the engine is not at fault."""


class Engine:
    """Constructing one does no I/O. A connection serves one request: on a unix socket another costs next to nothing,
    and no connection to a restarted engine remains."""

    def __init__(self, address: str, *, timeout: float = ASK_SECONDS) -> None:
        """Raises ValueError if it is not the address of an engine on this host."""
        if not address.startswith(SCHEME + "/"):
            raise ValueError(f"{address!r} is not the address of a container engine: unix:///run/docker.sock")
        self.address = address
        self._endpoint = UnixEndpoint(address.removeprefix(SCHEME))
        self._timeout = timeout
        self._version = ""

    async def info(self) -> dict[str, Any]:
        return await self._object("GET", "/info")

    async def version(self) -> dict[str, Any]:
        """The engine's name, and its versions of the API."""
        return await self._object("GET", "/version")

    async def ping(self) -> None:
        """Raises SandboxUnavailable unless it answers; this costs an engine less than any other question."""
        await self._ask("GET", "/_ping")

    async def image(self, name: str) -> dict[str, Any] | None:
        """The facts about an image; None if it is not there."""
        return await self._object_or_none("GET", f"/images/{_quoted(name)}/json")

    async def create(self, name: str, container: Mapping[str, Any]) -> tuple[str, list[str]]:
        """The new container's id, and the engine's warnings."""
        made = await self._object("POST", "/containers/create", query={"name": name}, body=container)
        with self._unavailable():
            return _id(made), texts(made.get("Warnings"))

    async def start(self, container: str) -> None:
        await self._ask("POST", f"/containers/{_quoted(container)}/start", fine=(304,))

    async def inspect(self, container: str) -> dict[str, Any] | None:
        return await self._object_or_none("GET", f"/containers/{_quoted(container)}/json")

    async def stats(self, container: str) -> dict[str, Any] | None:
        """Its present usage; None if it is not there."""
        query = {"stream": "false", "one-shot": "true"}
        status, content = await self._ask("GET", f"/containers/{_quoted(container)}/stats", query=query, fine=(_GONE,))
        with self._unavailable():
            return None if status == _GONE else members(document(content))

    async def wait(self, container: str, seconds: float) -> int | None:
        """Wait for its end, and return its exit code; None if unknown. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            ended = await self._object("POST", f"/containers/{_quoted(container)}/wait", seconds=seconds + 1)
        code = ended.get("StatusCode")
        return code if isinstance(code, int) else None

    async def stop(self, container: str, seconds: float) -> None:
        """SIGTERM, and SIGKILL after so many seconds. No error if it does not run, or is not there."""
        query = {"t": str(max(1, round(seconds)))}
        path = f"/containers/{_quoted(container)}/stop"
        await self._ask("POST", path, query=query, fine=(304, _GONE), seconds=seconds + self._timeout)

    async def kill(self, container: str) -> bool:
        """SIGKILL to its first process. False: it did not run."""
        try:
            status, _ = await self._ask("POST", f"/containers/{_quoted(container)}/kill", fine=(_GONE, _IN_USE))
        except EngineRefused:  # Podman's status alone does not tell why
            if state(await self.inspect(container)).get("Running"):
                raise
            return False
        return status not in (_GONE, _IN_USE)

    async def remove(self, container: str) -> None:
        """Remove it with its volumes, whether it runs or not; when this returns it is not there."""
        query = {"force": "true", "v": "true"}
        path = f"/containers/{_quoted(container)}"
        with self._unavailable():
            async with asyncio.timeout(self._timeout):
                while True:
                    status, _ = await self._ask("DELETE", path, query=query, fine=(_GONE, _IN_USE))
                    if status != _IN_USE:
                        return
                    await asyncio.sleep(0.05)  # another request is removing it

    async def list(
        self, labels: Mapping[str, str], *, stopped: bool = False, only: str | None = None
    ) -> list[dict[str, Any]]:
        """The containers that carry these labels; `only` the one with that id."""
        filters = {"label": _pairs(labels)} | ({} if only is None else {"id": [only]})
        query = {"all": str(stopped).lower(), "filters": json.dumps(filters)}
        _, content = await self._ask("GET", "/containers/json", query=query)
        with self._unavailable():
            found = document(content)
            if not isinstance(found, list):
                raise BadAnswer("its answer is not a list")
            return [members(each) for each in found]

    async def read_file(self, container: str, path: str, most: int) -> bytes | None:
        """A file in a container, whether it runs or not; None if there is no such file. Raises TooLong if it has more
        than `most` bytes."""
        where = f"/containers/{_quoted(container)}/archive"
        status, content = await self._ask("GET", where, query={"path": path}, fine=(_GONE,), most=most, whole=False)
        if len(content) > most:
            raise TooLong(f"{path} is longer than {most} bytes")
        return None if status == _GONE else _first_file(content)

    async def has_file(self, container: str, path: str) -> bool:
        """Whether there is anything of that name in a container; a link counts, wherever it leads."""
        where = f"/containers/{_quoted(container)}/archive"
        status, _ = await self._ask("GET", where, query={"path": path}, fine=(_GONE,), most=_HEAD_BYTES, whole=False)
        return status != _GONE

    async def events(
        self, labels: Mapping[str, str], *, since: int | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Events of the containers with these labels, from now or from that second on, until the engine goes away
        (SandboxUnavailable)."""
        query = {"filters": json.dumps({"type": ["container"], "label": _pairs(labels)})}
        query |= {} if since is None else {"since": str(since)}
        async for message in self._lines("GET", "/events", query, {}, None):
            yield message

    async def pull(self, image: str, *, login: str = "") -> AsyncGenerator[dict[str, Any], None]:
        """Fetch an image; yields the engine's reports: `status`, `id` of a layer, `progressDetail`. `login` is the
        value of X-Registry-Auth. The caller bounds the time. Raises EngineRefused, also for an error that comes last.
        """
        name, tag = name_and_tag(image)
        query = {"fromImage": name} | ({"tag": tag} if tag else {})
        headers = {"X-Registry-Auth": login} if login else {}
        async for message in self._lines("POST", "/images/create", query, headers, None):
            if said := trouble(message):
                raise EngineRefused(0, said)
            yield message

    async def in_registry(self, image: str, *, login: str = "") -> dict[str, Any]:
        """What the image's registry says of it, without fetching it; `login` as for a pull. Raises EngineRefused with
        the registry's text, or why it cannot be reached. Podman cannot ask."""
        headers = {"X-Registry-Auth": login} if login else {}
        return await self._object("GET", f"/distribution/{_quoted(image)}/json", headers=headers)

    async def _object(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        seconds: float = 0,
    ) -> dict[str, Any]:
        _, content = await self._ask(method, path, query=query, headers=headers, body=body, seconds=seconds)
        with self._unavailable():
            return members(document(content))

    async def _object_or_none(self, method: str, path: str) -> dict[str, Any] | None:
        status, content = await self._ask(method, path, fine=(_GONE,))
        if status == _GONE:
            return None
        with self._unavailable():
            found = members(document(content))
            _id(found)
            return found

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        fine: tuple[int, ...] = (),
        seconds: float = 0,
        most: int = MAX_ANSWER,
        whole: bool = True,
    ) -> tuple[int, bytes]:
        """Status and body of an answer; of one that need not be `whole`, as much as shows that it is longer than
        `most`. Raises EngineRefused for a status that is neither 2xx nor `fine`."""
        payload = b"" if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if payload else {}
        sent = {**_HEADERS, **(headers or {}), **kind, "Connection": "close"}
        with self._unavailable():
            async with asyncio.timeout(seconds or self._timeout):
                target = await self._versioned(path, query)
                connection = await connect(self._endpoint)
                try:
                    status, _, content = await connection.fetch(method, target, sent, payload, most=most + 1)
                finally:
                    connection.close()
            if whole and len(content) > most:
                raise BadAnswer("its answer is too long")
        if not (200 <= status < 300 or status in fine):
            raise EngineRefused(status, complaint(content))
        return status, content

    async def _lines(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], silence: float | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The messages of a stream as they come, with at most so many seconds between two."""
        lines = JsonLines()
        connection: Connection | None = None
        try:
            with self._unavailable():
                async with asyncio.timeout(self._timeout):
                    target = await self._versioned(path, query)
                    connection = await connect(self._endpoint)
                async with asyncio.timeout(silence):
                    answer = await connection.ask(method, target, {**_HEADERS, **headers, "Connection": "close"})
                    refusal = b"" if 200 <= answer.status < 300 else await connection.read_whole(MAX_ANSWER)
            if not 200 <= answer.status < 300:
                raise EngineRefused(answer.status, complaint(refusal))
            while True:
                with self._unavailable():
                    async with asyncio.timeout(silence):
                        data = await connection.read()
                    messages = lines.feed(data) if data else lines.end()
                for message in messages:
                    yield message
                if not data:
                    return
        finally:
            if connection is not None:
                connection.close()

    async def _versioned(self, path: str, query: Mapping[str, str] | None) -> str:
        """The path in the version that both speak. The version is asked for again after the engine went away: another
        engine may come back."""
        if not self._version:
            connection = await connect(self._endpoint)
            try:
                headers = _HEADERS | {"Connection": "close"}
                _, _, content = await connection.fetch("GET", "/version", headers, most=MAX_ANSWER)
            finally:
                connection.close()
            self._version = negotiated(document(content))
        return self._version + path + (f"?{urlencode(query)}" if query else "")

    @contextlib.contextmanager
    def _unavailable(self) -> Iterator[None]:
        """Turns every failure between here and the engine into SandboxUnavailable."""
        try:
            yield
        except (OSError, BadAnswer) as exc:
            self._version = ""
            why = "no answer in time" if isinstance(exc, TimeoutError) else getattr(exc, "strerror", None) or str(exc)
            raise SandboxUnavailable(f"the container engine at {self.address} does not answer: {why}") from exc


def _first_file(archive: bytes) -> bytes | None:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.next()
            file = tar.extractfile(member) if member is not None and member.isreg() else None
            return file.read() if file is not None else None
    except (tarfile.TarError, EOFError):
        return None


def _pairs(labels: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in labels.items()]


def _id(answer: Mapping[str, Any]) -> str:
    found = answer.get("Id")
    if not isinstance(found, str) or not found:
        raise BadAnswer("its answer names nothing")
    return found


def _quoted(name: str) -> str:
    return quote(name, safe="")
