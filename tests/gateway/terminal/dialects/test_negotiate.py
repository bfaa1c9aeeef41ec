"""Path, sub-protocol and query choose the dialect."""

import pytest

from gateway.protocol.errors import ApiError
from gateway.terminal.dialects.cloudflare import CloudflareDialect
from gateway.terminal.dialects.jupyter import JupyterDialect
from gateway.terminal.dialects.native import NativeDialect
from gateway.terminal.dialects.negotiate import Kind, choose
from gateway.terminal.dialects.plain import PlainDialect
from gateway.terminal.dialects.ports import Dialect
from gateway.terminal.dialects.ttyd import TtydDialect
from tests.support.dialects import texts

NATIVE = "holdfast.terminal.v1"


@pytest.mark.parametrize(
    ("kind", "offered", "query", "dialect", "protocol"),
    [
        ("terminal", [], [], PlainDialect, None),
        ("terminal", ["something"], [("name", "main")], PlainDialect, None),
        ("terminal", [], [("dialect", "plain")], PlainDialect, None),
        ("terminal", [], [("dialect", "native")], NativeDialect, None),
        ("terminal", ["x", NATIVE], [], NativeDialect, NATIVE),
        ("terminal", [NATIVE], [("dialect", "native"), ("dialect", "native")], NativeDialect, NATIVE),
        ("terminal", ["tty"], [], PlainDialect, None),
        ("cloudflare", [NATIVE], [("dialect", "native")], CloudflareDialect, None),
        ("jupyter", ["tty"], [("dialect", "?")], JupyterDialect, None),
        ("tty", ["tty"], [("dialect", "plain")], TtydDialect, "tty"),
        ("tty", [], [("arg", "dialect")], TtydDialect, None),
    ],
)
def test_path_sub_protocol_and_query_choose(
    kind: Kind, offered: list[str], query: list[tuple[str, str]], dialect: type[Dialect], protocol: str | None
) -> None:
    chosen = choose(kind, offered, query)
    assert (type(chosen.dialect), chosen.protocol) == (dialect, protocol)


@pytest.mark.parametrize(
    ("offered", "named", "code"),
    [
        ([], ["tty"], "unknown_dialect"),
        ([], [""], "unknown_dialect"),
        ([], ["plain", "?"], "unknown_dialect"),
        ([], ["plain", "native"], "ambiguous_dialect"),
        ([NATIVE], ["plain"], "ambiguous_dialect"),
    ],
)
def test_a_dialect_that_is_unknown_or_named_unlike_is_refused(offered: list[str], named: list[str], code: str) -> None:
    with pytest.raises(ApiError) as refused:
        choose("terminal", offered, [("dialect", name) for name in named])
    assert (refused.value.status, refused.value.code) == (400, code)


def test_two_viewers_share_no_state() -> None:
    first, second = choose("terminal", [], []).dialect, choose("terminal", [], []).dialect
    assert first.output(b"\xe2\x82") == b""
    assert texts(second.output(b"x")) == ["x"]
