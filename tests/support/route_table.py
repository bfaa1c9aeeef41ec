"""`make routes`: write the table of routes in docs/protocol/routes.md anew, from their declarations."""

from pathlib import Path

from gateway.routing.docs_table import written_into
from tests.support.routes import SPECS

PAGE = Path(__file__).parents[2] / "docs/protocol/routes.md"


def main() -> None:
    PAGE.write_text(written_into(PAGE.read_text(), SPECS))


if __name__ == "__main__":
    main()
