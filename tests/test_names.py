"""A class name, private ones included, means one thing in the whole tree: whoever searches for it finds one class."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.support.coverage_floor import PACKAGES, ROOT


def repeated(root: Path) -> dict[str, list[str]]:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(path.relative_to(root).as_posix())
    return {name: found for name, found in places.items() if len(found) > 1}


def test_each_class_name_exists_once() -> None:
    assert repeated(ROOT) == {}, "give one of each a name that says more"


def test_a_private_name_that_is_there_twice_is_found(tmp_path: Path) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text(f"class {package.title()}: ...\n")
    (tmp_path / "sync/two.py").write_text("class _Entry: ...\n")
    (tmp_path / "gateway/two.py").write_text("def make():\n    class _Entry: ...\n")
    assert repeated(tmp_path) == {"_Entry": ["gateway/two.py", "sync/two.py"]}
