"""Clients that know only of output are told nothing else."""

import pytest

from gateway.terminal.dialects.jupyter import JupyterDialect
from gateway.terminal.dialects.output_only import OutputOnlyDialect
from gateway.terminal.dialects.plain import PlainDialect
from gateway.terminal.dialects.ttyd import TtydDialect
from sandbox.protocol.terminal import Size
from tests.support.dialects import TROUBLE


@pytest.mark.parametrize("make", [OutputOnlyDialect, PlainDialect, JupyterDialect, TtydDialect])
def test_whatever_happens_is_not_told(make: type[OutputOnlyDialect]) -> None:
    dialect = make()
    assert dialect.resized(Size(9, 8)) == b""
    assert dialect.told_status("running") == b""
    assert dialect.told_trouble(TROUBLE) == b""
    assert dialect.told_expiring("soon") == b""
