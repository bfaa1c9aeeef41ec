"""The address of an agent that is a server: a loopback address of its own sandbox. Pure.

Gateway and bridge read the address in the same way. Other addresses are refused: a sandbox without a network has no
others, and a bridge connects only to its own sandbox.
"""

import re
from dataclasses import dataclass

LONGEST = 1024  # characters
A_CONNECT = "ws://HOST:PORT, perhaps with a path; HOST is localhost, [::1] or 127.0.0.1: the agent's own sandbox"
A_HEALTH = "a path of the same server, such as /health"

_CONNECT = re.compile(r'ws://(localhost|\[::1\]|127(?:\.[0-9]{1,3}){3}):([1-9][0-9]{0,4})(/[!"$-~]*)?')
_HEALTH = re.compile(r'/[!"$-~]*')


class BadServer(ValueError):
    """`member` must be `wanted`."""

    def __init__(self, member: str, wanted: str) -> None:
        super().__init__(f"{member}: {wanted}")
        self.member = member
        self.wanted = wanted


@dataclass(frozen=True, slots=True)
class AgentServer:
    """`hosts` are tried in this order. `target` is the WebSocket's path. The server is ready when `health` answers
    2xx; if that is "", when it accepts the WebSocket."""

    connect: str
    health: str
    hosts: tuple[str, ...]
    port: int
    target: str

    @property
    def address(self) -> str:
        """As people read it, and as a request's `Host`."""
        return self.connect.removeprefix("ws://").partition("/")[0]

    def members(self) -> dict[str, str]:
        """As `read_server` reads them."""
        return {"connect": self.connect, "health": self.health}


def read_server(connect: object, health: object = "") -> AgentServer:
    """Raises BadServer."""
    found = _CONNECT.fullmatch(connect) if isinstance(connect, str) and len(connect) <= LONGEST else None
    if found is None or not int(found[2]) < 1 << 16 or not all(_is_byte(each) for each in found[1].split(".")[1:]):
        raise BadServer("connect", A_CONNECT)
    if not isinstance(health, str) or len(health) > LONGEST or not (health == "" or _HEALTH.fullmatch(health)):
        raise BadServer("health", A_HEALTH)
    hosts = {"localhost": ("127.0.0.1", "::1"), "[::1]": ("::1",)}.get(found[1], (found[1],))
    return AgentServer(found[0], health, hosts, int(found[2]), found[3] or "/")


def _is_byte(digits: str) -> bool:
    return int(digits) < 256 and digits == str(int(digits))
