"""Chooses a connection's dialect: by path, sub-protocol and query, never by its messages. Pure.

`/terminal/{id}` has two, and plain is the default; the paths of other servers' clients have one each, and their queries
belong to those clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.protocol.errors import ApiError
from gateway.terminal.dialects import native, ttyd
from gateway.terminal.dialects.cloudflare import CloudflareDialect
from gateway.terminal.dialects.jupyter import JupyterDialect
from gateway.terminal.dialects.native import NativeDialect
from gateway.terminal.dialects.plain import PlainDialect
from gateway.terminal.dialects.ports import Dialect
from gateway.terminal.dialects.ttyd import TtydDialect

Kind = Literal["terminal", "cloudflare", "jupyter", "tty"]


@dataclass(frozen=True, slots=True)
class Choice:
    """`protocol` is the sub-protocol to answer with; None: none of the offered ones."""

    dialect: Dialect
    protocol: str | None


def choose(kind: Kind, offered: Sequence[str], query: Sequence[tuple[str, str]]) -> Choice:
    """A dialect for one viewer. Raises ApiError for a connection that asks for an unknown dialect, or for two at
    once."""
    match kind:
        case "cloudflare":
            return Choice(CloudflareDialect(), None)
        case "jupyter":
            return Choice(JupyterDialect(), None)
        case "tty":
            return Choice(TtydDialect(), ttyd.PROTOCOL if ttyd.PROTOCOL in offered else None)
    return _ours(native.PROTOCOL in offered, [value for name, value in query if name == "dialect"])


def _ours(offers_native: bool, named: list[str]) -> Choice:
    if any(name not in ("native", "plain") for name in named):
        raise ApiError(400, "unknown_dialect", "dialect is native or plain")
    if len(set(named)) > 1 or (offers_native and "plain" in named):
        raise ApiError(400, "ambiguous_dialect", "the dialect is named twice, and not alike")
    if offers_native:
        return Choice(NativeDialect(), native.PROTOCOL)
    return Choice(NativeDialect() if "native" in named else PlainDialect(), None)
