"""Clients that know only of output are told nothing else."""

import pytest

from gateway.sockets.dialects.jupyter import JupyterDialect
from gateway.sockets.dialects.plain import PlainDialect
from gateway.sockets.dialects.quiet import QuietDialect
from gateway.sockets.dialects.tty import TtyDialect
from sandbox.terminal.wire import Size
from tests.support.dialects import TROUBLE


@pytest.mark.parametrize("make", [QuietDialect, PlainDialect, JupyterDialect, TtyDialect])
def test_whatever_happens_is_not_told(make: type[QuietDialect]) -> None:
    dialect = make()
    assert dialect.resized(Size(9, 8)) == b""
    assert dialect.told_status("running") == b""
    assert dialect.told_trouble(TROUBLE) == b""
    assert dialect.told_expiring("soon") == b""
