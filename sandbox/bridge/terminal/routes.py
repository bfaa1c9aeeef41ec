"""The terminals of a sandbox, by name. They are kept while nobody looks, and go by policy."""

import asyncio
import functools
import os
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from sandbox.bridge.agent.agent import Agent
from sandbox.bridge.base.config import Config, env_pair_is_usable
from sandbox.bridge.base.handover import hand_over
from sandbox.bridge.base.requests import Refused, read_json
from sandbox.bridge.terminal.terminal import Program, Terminal
from sandbox.bridge.terminal.viewer import ABSENT, ENDED, GOING, HELD, TOO_MANY, BridgeViewer, Turned
from sandbox.protocol.terminal import MAX_SIDE, NAME, Open, Size, TerminalTrouble
from sandbox.system.log import log

DEFAULT_SIZE = Size(80, 24)
MAX_ARGUMENTS = 4096

_STATUS = {HELD: 409, TOO_MANY: 429}


class Terminals:
    """All of them; none starts while `agent` may not."""

    def __init__(self, config: Config, agent: Agent) -> None:
        self._config = config
        self._agent = agent
        self._by_name: dict[str, Terminal] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    # Routes

    async def link(self, socket: WebSocket) -> None:
        """One viewer of one terminal, to its end."""
        name = socket.path_params["name"]
        if not NAME.fullmatch(name):
            return await socket.send_denial_response(_bad_name())
        viewer = BridgeViewer(functools.partial(self._enter, name), self._config.limits)
        try:
            await socket.accept()
            hand_over(socket.scope, viewer.take)
        except (ConnectionError, WebSocketDisconnect):
            return None
        await viewer.gone
        return None

    async def list(self, request: Request) -> JSONResponse:
        return JSONResponse({"terminals": [terminal.describe() for terminal in self._by_name.values()]})

    async def create(self, request: Request) -> JSONResponse:
        """Run a terminal, if it does not run. Another command than the one that runs is refused."""
        name = _name(request)
        members = await read_json(request, {})
        program, size = self._parse(members)
        terminal = self._by_name.get(name)
        runs = terminal is not None and terminal.alive
        try:
            if terminal is None:
                terminal = self._open(name, program, size or DEFAULT_SIZE)
            elif not terminal.alive:
                terminal.start(program if members.keys() & {"command", "env", "cwd"} else None)
            elif "command" in members and terminal.program.argv != program.argv:
                raise Refused(409, "conflict", "this terminal runs another command")
        except Turned as exc:
            raise Refused(_STATUS.get(exc.close_code, 400), exc.trouble.code, exc.trouble.reason) from exc
        if size is not None:
            terminal.set_size(size)
        return JSONResponse(terminal.describe(), status_code=200 if runs else 201)

    async def remove(self, request: Request) -> Response:
        terminal = self._find(request)
        await self._remove(terminal)
        return Response(status_code=204)

    async def resize(self, request: Request) -> JSONResponse:
        members = await read_json(request, None)
        size = _size(members) if isinstance(members, dict) else None
        if size is None:
            raise Refused(400, "bad_request", f"cols and rows must be whole numbers from 1 to {MAX_SIDE}")
        terminal = self._find(request)
        terminal.set_size(size)
        return JSONResponse(terminal.describe())

    # Ending

    async def end_programs(self) -> None:
        """Hang up on every program; return when all have ended. What was shown stays."""
        await asyncio.gather(*(terminal.end() for terminal in self._by_name.values()))

    async def close(self) -> None:
        """End everything; nothing starts any more."""
        self._closed = True
        await self.end_programs()
        for terminal in self._by_name.values():
            terminal.close(GOING, "the sandbox ends")
        self._by_name.clear()

    async def _remove(self, terminal: Terminal) -> None:
        if self._by_name.get(terminal.name) is terminal:
            del self._by_name[terminal.name]
        terminal.retire()
        await terminal.end()
        terminal.close(ENDED, "the terminal was ended")

    def _on_unwatched(self, terminal: Terminal) -> None:
        log("terminal.forgotten", name=terminal.name, alive=terminal.alive)
        task = asyncio.create_task(self._remove(terminal), name=f"terminal.{terminal.name}.end")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    # Opening

    def _enter(self, name: str, viewer: BridgeViewer, wish: Open) -> None:
        terminal = self._by_name.get(name)
        if terminal is None and wish.role == "view":  # to look is not to start a program
            raise Turned(TerminalTrouble("unknown_terminal", "nobody has opened this terminal yet"), ABSENT)
        if terminal is None:
            size = wish.size if self._config.sizes != "fixed" and wish.role == "drive" else None
            terminal = self._open(name, self._parse({})[0], size or DEFAULT_SIZE)
        terminal.join(viewer, wish)

    def _open(self, name: str, program: Program, size: Size) -> Terminal:
        """Raises Turned."""
        if len(self._by_name) >= self._config.limits.terminals:
            self._make_room()
        terminal = Terminal(
            name, program, self._config, size, may_start=self._may_start, on_unwatched=self._on_unwatched
        )
        self._by_name[name] = terminal
        return terminal

    def _make_room(self) -> None:
        for terminal in self._by_name.values():
            if not terminal.alive and not terminal.watched:
                del self._by_name[terminal.name]
                return terminal.close(ENDED, "")
        raise Turned(TerminalTrouble("too_many", f"{len(self._by_name)} terminals run already"), TOO_MANY)

    def _may_start(self) -> bool:
        return not self._closed and not self._agent.barred

    def _find(self, request: Request) -> Terminal:
        terminal = self._by_name.get(_name(request))
        if terminal is None:
            raise Refused(404, "not_found", "no such terminal")
        return terminal

    def _parse(self, members: Any) -> tuple[Program, Size | None]:
        """Raises Refused."""
        if not isinstance(members, dict) or members.keys() - {"command", "env", "cwd", "cols", "rows"}:
            raise Refused(400, "bad_request", "known members are command, env, cwd, cols, rows")
        argv = members.get("command", list(self._config.shell) or _login_shell())
        if (
            not isinstance(argv, list)
            or not 0 < len(argv) <= MAX_ARGUMENTS
            or not all(map(_is_text, argv))
            or not argv[0]
        ):
            raise Refused(400, "bad_request", "command must be a list of strings")
        env, cwd = members.get("env", {}), members.get("cwd", "")
        if not isinstance(env, dict) or not all(env_pair_is_usable(*pair) for pair in env.items()):
            raise Refused(400, "bad_request", "env must be an object of strings")
        if not _is_text(cwd):
            raise Refused(400, "bad_request", "cwd must be a path")
        size = _size(members)
        if size is None and ("cols" in members or "rows" in members):
            raise Refused(400, "bad_request", f"cols and rows must be whole numbers from 1 to {MAX_SIDE}")
        return Program(tuple(argv), str(Path(self._config.workspace, cwd)), env), size


def _login_shell() -> list[str]:
    return ["/bin/bash", "-l"] if os.access("/bin/bash", os.X_OK) else ["/bin/sh"]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _size(members: dict[str, Any]) -> Size | None:
    cols, rows = members.get("cols"), members.get("rows")
    if type(cols) is int and type(rows) is int and 0 < cols <= MAX_SIDE and 0 < rows <= MAX_SIDE:
        return Size(cols, rows)
    return None


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not NAME.fullmatch(name):
        raise Refused(400, "bad_request", "a name has 1 to 64 letters, digits, - and _, a letter or digit first")
    return name


def _bad_name() -> JSONResponse:
    return JSONResponse({"error": "no such name", "code": "bad_request"}, status_code=400)
