"""`python -m sandbox.bridge --listen 127.0.0.1:4000 --agent /bin/cat`: a bridge without a gateway, to try an agent
with curl and a WebSocket client. sandbox/bridge/raw_lines.py has what it offers."""

import argparse
import ipaddress
import logging
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from sandbox.bridge.agent.agent import Agent
from sandbox.bridge.agent.taken import TakenNotes
from sandbox.bridge.base.config import Config, env_pair_is_usable
from sandbox.bridge.raw_lines import RawLines
from sandbox.bridge.serving import end_on_signals, run, serve_until
from sandbox.bridge.web_server import WebServer
from sandbox.protocol.agent import MAX_DELIVERY
from sandbox.system.child import guard_this_process
from sandbox.system.log import JsonHandler

DESCRIPTION = """Run an agent without a gateway, to try it. Each text frame of a WebSocket, on any path,
is a line for the agent's stdin; each line of its stdout is a text frame. GET /health
says whether the agent waits, runs or has exited. The agent starts when a client comes
and none runs, with this shell's environment; its stderr is shown here. Ctrl-C ends it."""
EXAMPLE = """example:
  python -m sandbox.bridge --listen 127.0.0.1:4000 --agent /bin/cat
  curl http://127.0.0.1:4000/health
  python -m websockets ws://127.0.0.1:4000/   (or: websocat ws://127.0.0.1:4000/)"""


class BadChoice(Exception):
    """The options do not work. The text says what to do instead."""


class Stderr:
    """Passes the agent's stderr to the bridge's."""

    def write(self, chunk: bytes) -> None:
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()

    def close(self) -> None:
        return


def main(words: Sequence[str]) -> int:
    parser = _parser()
    chosen = parser.parse_args(words)
    try:
        if not chosen.agent:
            raise BadChoice("--agent needs a program to run, such as --agent /bin/cat")
        if chosen.listen is None:
            raise BadChoice("--listen HOST:PORT is missing; everything after --agent belongs to the agent")
        agent = (find_program(chosen.agent[0]), *chosen.agent[1:])
        workspace = Path(chosen.workspace).resolve()
        if not workspace.is_dir():
            raise BadChoice(f"--workspace {chosen.workspace}: no such directory")
        listener = listen(*parse_listen(chosen.listen), allow_remote=chosen.allow_remote)
    except BadChoice as exc:
        parser.error(str(exc))
    logging.basicConfig(level=logging.WARNING, handlers=[JsonHandler()])
    guard_this_process()
    with listener, TemporaryDirectory(prefix="holdfast-bridge-") as state:
        run(_run(_config(agent, workspace, Path(state)), listener))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m sandbox.bridge",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to listen; port 0 takes a free one")
    parser.add_argument("--workspace", metavar="DIR", default=".", help="where the agent runs; the current directory")
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        help="allow an address that other machines can reach: everybody who reaches it can drive the agent",
    )
    parser.add_argument(
        "--agent",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM [ARGUMENT ...]",
        help="the agent; comes last, everything after it is the agent's",
    )
    return parser


def find_program(name: str) -> str:
    """The path of the program. Raises BadChoice."""
    found = shutil.which(name)
    if found is None:
        raise BadChoice(f"--agent {name}: there is no such program")
    return os.path.abspath(found)  # the agent runs in another directory than the bridge


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port. Raises BadChoice."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not (colon and host and port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 65536):
        raise BadChoice(f"--listen {text}: give a host and a port, such as 127.0.0.1:4000 or [::1]:4000")
    return host, int(port)


def listen(host: str, port: int, *, allow_remote: bool) -> socket.socket:
    """A socket that listens there. Raises BadChoice."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback and not allow_remote:
            raise BadChoice(
                f"--listen {host}: other machines can reach this address, and without a token anybody there can "
                "drive the agent. Listen on 127.0.0.1, or add --allow-remote if that is what you want"
            )
        return socket.create_server((str(address[0]), int(address[1])), family=family, backlog=64)
    except OSError as exc:
        raise BadChoice(f"--listen {host}:{port}: {exc.strerror or exc}") from exc


def _config(agent: tuple[str, ...], workspace: Path, state: Path) -> Config:
    return Config(
        session_id="by-hand",
        incarnation=1,
        token="",
        agent=agent,
        env={},
        base_env={key: value for key, value in os.environ.items() if env_pair_is_usable(key, value)},
        kept=state / "kept",
        workspace=workspace,
        state=state,
        agent_log=state / "agent.log",
    )


async def _run(config: Config, listener: socket.socket) -> None:
    notes = TakenNotes(config.state)
    agent = Agent(config, notes, Stderr)
    ending = end_on_signals()
    host, port = listener.getsockname()[:2]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sys.stderr.write(
        f"{config.agent[0]} waits for a WebSocket on ws://{where}/ (any path); http://{where}/health says how it is\n"
    )
    sys.stderr.flush()
    lines = RawLines(agent)
    web = WebServer(lines, WebSocketsSansIOProtocol, MAX_DELIVERY)
    await serve_until(ending, web.caller, listener, lines.end, web.close)
    notes.close()
