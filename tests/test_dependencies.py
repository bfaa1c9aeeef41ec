"""docs/decisions/dependencies.md says why of every dependency, and of nothing else."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/decisions/dependencies.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def explained(title: str) -> list[str]:
    """The packages of the first table under `title`, in lower case, without extras and versions."""
    (table,) = re.findall(r"\A.*?^\|---\|---\|\n(.*?)(?:\n\n|\Z)", PAGE[PAGE.index(title) :], re.DOTALL | re.MULTILINE)
    cells = [row.split("|")[1].strip() for row in table.splitlines()]
    return [name_of(each) for cell in cells if not cell.startswith("*stdlib*") for each in cell.split(",")]


def name_of(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement.strip())
    assert found, requirement
    return found[0].lower()


def test_every_dependency_has_its_line_and_every_line_its_dependency() -> None:
    lines = explained("# Dependencies, and why each")
    assert sorted(lines) == sorted(map(name_of, PROJECT["project"]["dependencies"]))


def test_every_development_dependency_has_its_line_and_every_line_its_dependency() -> None:
    listed = [each for group in PROJECT["dependency-groups"].values() for each in group if isinstance(each, str)]
    assert sorted(explained("For development, build and tests:")) == sorted(map(name_of, listed))


def test_there_are_no_other_lists_of_dependencies() -> None:
    assert "optional-dependencies" not in PROJECT["project"]
    assert set(PROJECT["dependency-groups"]) == {"build", "dev", "page"}


def test_a_floor_on_the_page_is_the_floor_of_the_project() -> None:
    floors = re.findall(r"^\| ([\w.-]+(?:\[\w+\])? >= [\d.]+) \|", PAGE, re.MULTILINE)
    required = [each.split(",")[0] for each in PROJECT["project"]["dependencies"]]
    assert floors
    assert {floor.replace(" ", "") for floor in floors} <= set(required)
