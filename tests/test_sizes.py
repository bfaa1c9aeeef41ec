"""Classes of gateway/session are small enough to be read at once."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES, MOST_METHODS = 300, 25


def too_large(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            lines = (node.end_lineno or node.lineno) + 1 - node.lineno
            methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
            if lines > MOST_LINES or methods > MOST_METHODS:
                yield node.name


def test_no_class_of_a_session_is_larger_than_one_can_read() -> None:
    modules = (ROOT / "gateway" / "session").rglob("*.py")
    found = {name for module in modules for name in too_large(module.read_bytes())}
    assert found == set(), f"split them: at most {MOST_LINES} lines and {MOST_METHODS} methods"


def test_a_class_that_is_too_large_is_found() -> None:
    many = "class Many:\n" + "".join(f"    def m{number}(self): ...\n" for number in range(MOST_METHODS + 1))
    long = "class Long:\n" + "    x = 1\n" * MOST_LINES
    assert list(too_large((many + long).encode())) == ["Many", "Long"]
    assert not list(too_large(b"class Small:\n    def m(self): ...\n"))
