"""The terminals of a sandbox, by name. They stay while nobody watches, and end by policy."""

import asyncio
import functools
import os
from pathlib import Path

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from sandbox.bridge.agent.agent import Agent
from sandbox.bridge.base.bodies import read_body
from sandbox.bridge.base.config import Config, env_pair_is_usable
from sandbox.bridge.base.handover import hand_over
from sandbox.bridge.base.requests import Refused
from sandbox.bridge.terminal.terminal import Program, Terminal
from sandbox.bridge.terminal.viewer import ABSENT, ENDED, GOING, HELD, TOO_MANY, BridgeViewer, Turned
from sandbox.protocol.terminal import MAX_SIDE, NAME, Open, Size, TerminalTrouble
from sandbox.protocol.terminal_requests import TerminalBody
from sandbox.system.log import log

DEFAULT_SIZE = Size(80, 24)

_STATUS = {HELD: 409, TOO_MANY: 429}

_TERMINAL, _SIZE = msgspec.json.Decoder(TerminalBody), msgspec.json.Decoder(Size)
_WORDS = {
    "": "known members are command, env, cwd, cols, rows",
    "command": "command must be a list of strings",
    "env": "env must be an object of strings",
    "cwd": "cwd must be a path",
    "cols": f"cols and rows must be whole numbers from 1 to {MAX_SIDE}",
    "rows": f"cols and rows must be whole numbers from 1 to {MAX_SIDE}",
}


class Terminals:
    """All terminals; none starts while `agent` may not."""

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

    async def list(self, request: Request) -> Response:
        return _answer({"terminals": [terminal.describe() for terminal in self._by_name.values()]})

    async def create(self, request: Request) -> Response:
        """Start a terminal if it does not run. Refused if another command runs in it."""
        name = _name(request)
        body = await read_body(request, _TERMINAL, _WORDS, TerminalBody())
        program, size = self._program(body), body.size
        terminal = self._by_name.get(name)
        runs = terminal is not None and terminal.alive
        try:
            if terminal is None:
                terminal = self._open(name, program, size or DEFAULT_SIZE)
            elif not terminal.alive:
                terminal.start(None if body.command is body.env is body.cwd is UNSET else program)
            elif body.command is not UNSET and terminal.program.argv != program.argv:
                raise Refused(409, "conflict", "this terminal runs another command")
        except Turned as exc:
            raise Refused(_STATUS.get(exc.close_code, 400), exc.trouble.code, exc.trouble.reason) from exc
        if size is not None:
            terminal.set_size(size)
        return _answer(terminal.describe(), 200 if runs else 201)

    async def remove(self, request: Request) -> Response:
        terminal = self._find(request)
        await self._remove(terminal)
        return Response(status_code=204)

    async def resize(self, request: Request) -> Response:
        size = await read_body(request, _SIZE, {"": _WORDS["cols"]})
        terminal = self._find(request)
        terminal.set_size(size)
        return _answer(terminal.describe())

    # Ending

    async def end_programs(self) -> None:
        """Hang up on every program; return when all have ended. Their screens stay."""
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
        if terminal is None and wish.role == "view":  # viewing does not start a program
            raise Turned(TerminalTrouble("unknown_terminal", "nobody has opened this terminal yet"), ABSENT)
        if terminal is None:
            size = wish.size if self._config.sizes != "fixed" and wish.role == "drive" else None
            terminal = self._open(name, self._program(TerminalBody()), size or DEFAULT_SIZE)
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

    def _program(self, body: TerminalBody) -> Program:
        """Raises Refused."""
        argv = (self._config.shell or _login_shell()) if body.command is UNSET else body.command
        env = {} if body.env is UNSET else body.env
        cwd = "" if body.cwd is UNSET else body.cwd
        if not argv[0]:
            raise Refused(400, "bad_request", _WORDS["command"])
        if not all(env_pair_is_usable(*pair) for pair in env.items()):
            raise Refused(400, "bad_request", _WORDS["env"])
        return Program(tuple(argv), str(Path(self._config.workspace, cwd)), env)


def _login_shell() -> list[str]:
    return ["/bin/bash", "-l"] if os.access("/bin/bash", os.X_OK) else ["/bin/sh"]


def _answer(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not NAME.fullmatch(name):
        raise Refused(400, "bad_request", "a name has 1 to 64 letters, digits, - and _, a letter or digit first")
    return name


def _bad_name() -> JSONResponse:
    return JSONResponse({"error": "no such name", "code": "bad_request"}, status_code=400)
