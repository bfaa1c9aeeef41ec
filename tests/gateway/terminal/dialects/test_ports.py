"""What every dialect says of itself."""

from gateway.terminal.dialects.native import NativeDialect
from gateway.terminal.dialects.negotiate import Kind, choose
from gateway.terminal.dialects.plain import PlainDialect
from gateway.terminal.dialects.ports import Dialect


def test_a_dialect_that_tells_an_exit_stays_open_after_it_unless_its_clients_expect_the_end() -> None:
    kinds: tuple[Kind, ...] = ("cloudflare", "jupyter", "tty")
    chosen: list[Dialect] = [NativeDialect(), PlainDialect(), *(choose(kind, [], []).dialect for kind in kinds)]
    assert [dialect.closes_at_exit for dialect in chosen] == [False, True, False, True, True]
    assert [dialect.splices for dialect in chosen] == [True, False, True, False, False]
