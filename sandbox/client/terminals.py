"""A bridge's terminals: implements sandbox/ports/terminals.py."""

from typing import Any

from msgspec import UNSET

from sandbox.client import terminal_link
from sandbox.client.bridge_requests import CallFailed, ask
from sandbox.client.endpoint import Endpoint, Find
from sandbox.ports.link import LinkRefused
from sandbox.ports.sandbox import SandboxUnavailable
from sandbox.ports.terminals import PassOn, TerminalEvents, TerminalRefused, TerminalWish
from sandbox.protocol.messages import WireError, clip
from sandbox.protocol.terminal import Open, Size
from sandbox.protocol.terminal_requests import TerminalBody, decode_terminal

CALL_SECONDS = 10.0
LIST_SECONDS = 2.0  # a session's status waits for it
MOST_LISTED = 1000


class BridgeTerminals:
    """Implements SandboxTerminals."""

    def __init__(self, find: Find) -> None:
        self._find = find

    async def open(
        self, name: str, opening: Open, events: TerminalEvents, pass_on: PassOn
    ) -> terminal_link.BridgeTerminalLink:
        return await terminal_link.connect(await self._endpoint(), name, opening, events, pass_on)

    async def list(self) -> list[dict[str, Any]]:
        _, answer = await self._ask("GET", "/terminals", seconds=LIST_SECONDS)
        found = answer.get("terminals") if isinstance(answer, dict) else None
        if not isinstance(found, list) or len(found) > MOST_LISTED:
            raise LinkRefused("the bridge gave no list of terminals")
        try:
            return [decode_terminal(item) for item in found]
        except WireError as exc:
            raise LinkRefused(f"the bridge gave no list of terminals: {exc}") from exc

    async def create(self, name: str, wish: TerminalWish) -> bool:
        body = TerminalBody(
            command=UNSET if wish.command is None else list(wish.command),
            env=dict(wish.env) or UNSET,
            cwd=UNSET if wish.cwd is None else wish.cwd,
            cols=UNSET if wish.size is None else wish.size.cols,
            rows=UNSET if wish.size is None else wish.size.rows,
        )
        status, _ = await self._ask("POST", f"/terminals/{name}", body)
        return status == 201

    async def resize(self, name: str, size: Size) -> None:
        await self._ask("POST", f"/terminals/{name}/size", size)

    async def end(self, name: str) -> None:
        await self._ask("DELETE", f"/terminals/{name}")

    async def _endpoint(self) -> Endpoint:
        try:
            return await self._find()
        except SandboxUnavailable as exc:
            raise LinkRefused(str(exc)) from exc

    async def _ask(
        self, method: str, target: str, body: object = None, *, seconds: float = CALL_SECONDS
    ) -> tuple[int, Any]:
        endpoint = await self._endpoint()
        try:
            status, answer = await ask(endpoint, method, target, body=body, timeout=seconds)
        except CallFailed as exc:
            raise LinkRefused(f"the bridge did not answer: {exc}") from exc
        if status in (200, 201, 204):
            return status, answer
        told = answer if isinstance(answer, dict) else {}
        code, error = told.get("code"), told.get("error")
        readable = isinstance(code, str) and isinstance(error, str) and 400 <= status < 500
        if not readable:
            raise LinkRefused(f"the bridge answered {status}")
        raise TerminalRefused(status, "unknown_terminal" if status == 404 else clip(str(code)), clip(str(error)))
