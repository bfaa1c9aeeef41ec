"""`make tables`: write the tables of docs/ that are made from the code. `tests/test_docs.py` compares them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.config import descriptions
from gateway.protocol import close_codes, nacks
from gateway.routing import docs_table
from gateway.telemetry import metric_docs
from tests.support.routes import SPECS

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Table:
    """The text between two marks of a page."""

    page: str
    begin: str
    end: str
    text: Callable[[], str]

    def written(self) -> str:
        """The page with the table in it. Raises ValueError if a mark is not there once."""
        page = (ROOT / self.page).read_text()
        if page.count(self.begin) != 1 or page.count(self.end) != 1:
            raise ValueError(f"{self.page} needs the lines {self.begin} and {self.end} once each")
        before, _, rest = page.partition(self.begin)
        return f"{before}{self.begin}\n{self.text()}{self.end}{rest.partition(self.end)[2]}"


TABLES = {
    "routes": Table("docs/protocol/routes.md", docs_table.BEGIN, docs_table.END, lambda: docs_table.table(SPECS)),
    "settings": Table("docs/operations/settings.md", descriptions.BEGIN, descriptions.END, descriptions.table),
    "metrics": Table("docs/operations/watching.md", metric_docs.BEGIN, metric_docs.END, metric_docs.table),
    "close codes": Table("docs/protocol/close-codes.md", close_codes.BEGIN, close_codes.END, close_codes.table),
    "nacks": Table("docs/protocol/chat.md", nacks.BEGIN, nacks.END, nacks.table),
}


def main() -> None:
    for table in TABLES.values():
        text = table.written()
        (ROOT / table.page).write_text(text)


if __name__ == "__main__":
    main()
