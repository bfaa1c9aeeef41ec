"""`python -m tests.support.public_names`: every setting, route, close code, nack and metric in code and docs, and where
the two differ. `tests/test_docs.py` fails on a difference.

A page may use a name that the code has, and no other. A name that the code has stands in the table of its kind, which
`make tables` writes from the code (`tests/support/tables.py`).
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.app import build_house
from gateway.config.loading import load_settings
from gateway.config.settings import BUCKET_NAMES, KNOWN, resolve_secrets
from gateway.protocol.close_codes import CloseCode
from gateway.protocol.nacks import NACKS
from tests.support.routes import SPECS
from tests.support.tables import TABLES

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "web/client/README.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md" and "performance" not in path.parts  # what was, and what was measured
)
WORD = r"(?![A-Za-z0-9_])"
_METHODS = "GET|POST|PUT|PATCH|DELETE|WS"

# Of a bridge, and of the systems that docs/coming-from.md is about.
OTHERS = ("/restore", "/sandbox", "/api/v2/", "/backup", "/exec", "/start-pi")
IN_A_SANDBOX: set[str] = {"HOLDFAST_SESSION_ID", "HOLDFAST_TERMINAL"}  # what the gateway sets for programs


@dataclass(frozen=True)
class NameKind:
    """`used` finds names in a page; `known` says of one whether the code has it; `table` is where all must stand."""

    table: str
    code: Callable[[], set[str]]
    used: Callable[[str], set[str]]
    known: Callable[[str, set[str]], bool] = lambda name, code: name in code
    more: Callable[[], set[str]] = set  # used in the code by themselves


def metrics() -> set[str]:
    found = set()
    for store in ("", "postgresql://h/db", "https://h"):
        given = {"HOLDFAST_DATA_DIR": "unused", "HOLDFAST_STORE": store, "HOLDFAST_JWT_SECRET": "s" * 32}
        tokens = {f"HOLDFAST_{name}": letter * 32 for name, letter in zip(_TOKENS, "abcd", strict=True)}
        settings = load_settings(given | tokens)
        found |= build_house(settings, resolve_secrets(settings)).metrics.names()
    return found


_TOKENS = ("API_TOKEN", "INTERNAL_TOKEN", "RELAY_SECRET", "VAULT_KEY")


def reasons_said() -> set[str]:
    """Each reason that the gateway's code refuses a message with, where the call says it. Clients (`gateway/cli`) have
    reasons of their own."""
    return {
        reason
        for path in ROOT.glob("gateway/**/*.py")
        if "cli" not in path.relative_to(ROOT).parts
        for call in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(call, ast.Call)
        for reason in _reason(call)
    }


def _reason(call: ast.Call) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    place = {"MessageRefused": 0, "nack": 1, "_refuse": 1}.get(name)
    if place is not None and len(call.args) > place:
        word = call.args[place]
        if isinstance(word, ast.Constant) and isinstance(word.value, str):
            yield word.value


def codes_said() -> set[str]:
    """Numbers of the gateway's own range in its code and in the client's."""
    paths = [*ROOT.glob("gateway/**/*.py"), *ROOT.glob("web/client/src/*.ts")]
    return {code for path in paths for code in re.findall(rf"\b44\d\d{WORD}", path.read_text())}


def _routes_used(page: str) -> set[str]:
    found = re.findall(rf"(?:`|socket: `)({_METHODS}) (/[^`?\s]*)", page)
    return {f"{method} {path}" for method, path in found if "..." not in path and "<" not in path}


def _route_is_known(used: str, code: set[str]) -> bool:
    """A page may give a parameter a value, or another name; a socket is opened by GET."""
    method, _, path = used.partition(" ")
    shape = re.sub(r"\{[^}]*\}", "{}", path).rstrip("/") or "/"
    for spec in code:
        verb, _, known = spec.partition(" ")
        if verb != method and not (verb == "WS" and method == "GET"):
            continue
        pattern = "".join(
            ".+" if part.endswith(":path}") else "[^/]+" if part.startswith("{") else re.escape(part)
            for part in re.split(r"(\{[^}]*\})", known)
        )
        if re.fullmatch(pattern, shape) or re.fullmatch(pattern, f"{shape}/-"):  # a path may be left out
            return True
    return path.startswith(OTHERS)


def _table(name: str) -> str:
    table = TABLES[name]
    return (ROOT / table.page).read_text().partition(table.begin)[2].partition(table.end)[0]


KINDS = {
    "setting": NameKind(
        "settings",
        lambda: {*KNOWN, *BUCKET_NAMES},
        lambda page: set(re.findall(rf"\bHOLDFAST_[A-Z_]*[A-Z]{WORD}(?!\*)", page)),
        lambda name, code: name in code or name.startswith("HOLDFAST_TEST_") or name in IN_A_SANDBOX,
    ),
    "route": NameKind(
        "routes", lambda: {f"{spec.method} {spec.path}" for spec in SPECS}, _routes_used, _route_is_known
    ),
    "close code": NameKind(
        "close codes",
        lambda: {str(int(code)) for code in CloseCode},
        lambda page: set(re.findall(rf"\b44\d\d{WORD}", page)),
        more=codes_said,
    ),
    "nack": NameKind(
        "nacks",
        lambda: set(NACKS),
        lambda page: set(re.findall(r"`nack\{?(?: |[^`]*reason: \"?)([a-z_]+)", page)),
        more=reasons_said,
    ),
    "metric": NameKind(
        "metrics",
        metrics,
        lambda page: set(re.findall(rf"`(holdfast_[a-z_]+){WORD}", page)),
        lambda name, code: name in code or re.sub("_(bucket|count|sum)$", "", name) in code,
    ),
}


def differences(kind: NameKind, pages: dict[str, str]) -> list[str]:
    """One line each; `pages` are their texts by name."""
    code = kind.code()
    written = {cell for row in _table(kind.table).splitlines() for cell in _cells(row)}
    found = [f"{name} is in the code and not in the table of {kind.table}" for name in sorted(code - written)]
    for page, text in pages.items():
        found += [
            f"{page}: {name} is not in the code" for name in sorted(kind.used(text)) if not kind.known(name, code)
        ]
    return found + [f"{name} is used in the code and declared nowhere" for name in sorted(kind.more() - code)]


def _cells(row: str) -> set[str]:
    first = row.split("|")[1] if row.count("|") > 1 else ""
    return {first.strip(), *re.findall(r"`([^`]+)`", first)}


def main() -> int:
    pages = {str(path.relative_to(ROOT)): path.read_text() for path in PAGES}
    found = [f"{name}: {line}" for name, kind in KINDS.items() for line in differences(kind, pages)]
    for kind in KINDS.values():
        sys.stdout.write(f"{len(kind.code())} {kind.table}\n")
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
