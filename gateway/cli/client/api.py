"""The running gateway's HTTP API, as the commands use it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx

from gateway.cli.client.chat import is_loopback
from gateway.cli.console.output import as_typed
from gateway.config.data_dir import read_note
from gateway.config.settings import Settings
from gateway.protocol.text import visible_line


class CommandFailed(Exception):
    """The command cannot do its work; the text says why and what to do. `code` is the gateway's error code."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


def find_gateway(settings: Settings, url: str | None) -> str:
    """The gateway's address: the given one, or the one that the data directory's holder noted, or the one in the
    settings."""
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise CommandFailed("--url must begin with http:// or https://")
        return url.rstrip("/")
    noted = (read_note(settings.data_dir) or {}).get("address")
    return noted if isinstance(noted, str) else f"http://{settings.host}:{settings.port}"


class GatewayApi:
    """Raises CommandFailed with the gateway's own error text, or with advice if no gateway answers."""

    def __init__(self, url: str, credentials: Callable[[], dict[str, str]]) -> None:
        """`credentials` returns the headers of each request: a token may expire between two."""
        self.url = url
        self._credentials = credentials
        # Certificates take longer to load than most commands to run; a plain address needs none.
        verify = url.startswith("https:")
        self._client = httpx.AsyncClient(base_url=url, timeout=30, trust_env=not is_loopback(url), verify=verify)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def create(self, session_id: str, wish: dict[str, Any]) -> dict[str, Any]:
        return await self.ask("POST", f"/api/sandboxes/{session_id}", json=wish)

    async def session(self, session_id: str) -> dict[str, Any]:
        """The session, with the status of its agent."""
        return await self.ask("GET", f"/api/sandboxes/{session_id}")

    async def set_mode(self, session_id: str, mode: str | None) -> None:
        """Set what the agent may do without asking; None: the operator's default."""
        await self.ask("PATCH", f"/api/sandboxes/{session_id}", json={"mode": mode})

    async def pending(self, session_id: str) -> list[dict[str, Any]]:
        """The messages that the agent does not have yet, in order."""
        messages: list[dict[str, Any]] = (await self.ask("GET", f"/api/sandboxes/{session_id}/pending"))["messages"]
        return messages

    async def cancel_pending(self, session_id: str, seq: int) -> dict[str, Any]:
        return await self.ask("DELETE", f"/api/sandboxes/{session_id}/pending/{seq}")

    async def extend_pending(self, session_id: str, seq: int, seconds: float) -> dict[str, Any]:
        """Let a message wait for its sandbox for at least so long from now."""
        return await self.ask("POST", f"/api/sandboxes/{session_id}/pending/{seq}/extend", json={"seconds": seconds})

    async def agents(self) -> dict[str, Any]:
        """The agents that a session may have, and why others are not available."""
        return await self.ask("GET", "/api/agents")

    async def history(self, path: str, **params: int) -> list[dict[str, Any]]:
        """One page of records."""
        records: list[dict[str, Any]] = (await self.page(path, **params))["messages"]
        return records

    async def page(self, path: str, **params: int) -> dict[str, Any]:
        """One page of records, with the page's other members."""
        return await self.ask("GET", path, params=params)

    async def follow(self, path: str, after: int) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Events after `after` as they come, by name: `message` is a record. Until the gateway ends the stream."""
        event = "message"
        try:
            async with self._streaming("GET", path, follow=1, after=after) as answer:
                async for line in lines_of(answer):
                    if line.startswith(b"event: "):
                        event = line.removeprefix(b"event: ").decode()
                    elif line.startswith(b"data: "):
                        yield event, json.loads(line.removeprefix(b"data: "))
                    elif not line:
                        event = "message"
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    async def export(self, path: str, **params: str) -> AsyncIterator[bytes]:
        """Lines of JSON, each a record. Raises CommandFailed if the export turns out to be incomplete."""
        async with self._whole("GET", path, "the export", **params) as answer:
            async for line in _good_lines(answer):
                yield line

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """The file's bytes, as they come. Raises CommandFailed if they turn out to be incomplete."""
        async with self._whole("GET", path, "it") as answer:
            async for piece in answer.aiter_bytes():
                yield piece

    async def narrate(self, path: str, **params: str) -> AsyncIterator[dict[str, Any]]:
        """Run work at the gateway: yields its progress as objects, the last with its `result`."""
        async with self._whole("POST", path, "it", **params) as answer:
            async for line in _good_lines(answer):
                yield json.loads(line)

    @asynccontextmanager
    async def _whole(self, method: str, path: str, what: str, **params: str) -> AsyncIterator[httpx.Response]:
        begun = False
        try:
            async with self._streaming(method, path, **params) as answer:
                begun = True
                yield answer
        except httpx.TransportError as error:
            if begun:
                told = f"{what} ended early ({type(error).__name__}) and is not complete: begin again"
                raise CommandFailed(told) from error
            raise self._unreachable(error) from error

    @asynccontextmanager
    async def _streaming(self, method: str, path: str, **params: str | int) -> AsyncIterator[httpx.Response]:
        async with self._client.stream(
            method, path, params=params, headers=self._credentials(), timeout=httpx.Timeout(30, read=60)
        ) as answer:
            if answer.status_code >= 400:
                await answer.aread()
                raise _refused(answer)
            yield answer

    async def ask(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """One answer, whole."""
        try:
            answer = await self._client.request(method, path, headers=self._credentials(), **request)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if answer.status_code >= 400:
            raise _refused(answer)
        value: dict[str, Any] = answer.json()
        return value

    def _unreachable(self, error: Exception) -> CommandFailed:
        return CommandFailed(
            f"no gateway answers at {self.url} ({type(error).__name__}); start one with: {as_typed('serve')}\n"
            "  (or name another with --url, or its data directory with HOLDFAST_DATA_DIR)"
        )


async def lines_of(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Lines that end with a line feed and nothing else: JSON may contain any other line separator."""
    rest = b""
    async for chunk in answer.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


async def _good_lines(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Raises CommandFailed at a line that reports a failure."""
    async for line in lines_of(answer):
        if line.startswith(b'{"error":'):
            raise CommandFailed(f"the gateway says: {visible_line(str(json.loads(line)['error']))}")
        yield line


def _refused(answer: httpx.Response) -> CommandFailed:
    try:
        told, code = str(answer.json()["error"]), str(answer.json()["code"])
    except (ValueError, KeyError, TypeError):
        told, code = answer.reason_phrase, ""
    return CommandFailed(f"the gateway says: {visible_line(told)} ({answer.status_code})", code)
