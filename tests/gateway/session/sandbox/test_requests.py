"""Every code that the table refuses with has a status."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from gateway.session.sandbox import lifecycle
from gateway.session.sandbox.requests import HTTP_STATUS, api_error

CAUSES = {"start_failed", "not_stopped", "not_destroyed", "not_put_back"}  # who asked gets the error itself
CODE = re.compile(r"[a-z]+(_[a-z]+)*")


def refused_with() -> Iterator[str]:
    """Every code that the table refuses with: what is given to `refuse`, and pairs of a code and a text."""
    for module in Path(str(lifecycle.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            said: list[ast.expr] = []
            if isinstance(node, ast.Call) and "refuse" in ast.unparse(node.func):
                said = node.args
            elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
                said = node.elts[:1]
            yield from (each.value for each in said if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_every_refusal_has_a_status() -> None:
    codes = {code for code in refused_with() if CODE.fullmatch(code)}
    assert {"busy", "archived", "sandbox_unavailable"} <= codes
    assert codes <= set(HTTP_STATUS) | CAUSES
    assert {api_error(code, "x").status for code in codes - CAUSES} == {409, 429, 503}
