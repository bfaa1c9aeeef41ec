"""The public surface and its pages in docs/ say the same."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.cli.main import parser
from gateway.protocol import chat_frames
from gateway.protocol.nacks import NACKS
from gateway.routing.docs_table import BEGIN, END
from gateway.routing.route import WS
from tests.support import public_names
from tests.support.public_names import KINDS, differences
from tests.support.routes import SPECS
from tests.support.tables import TABLES, Table

ROOT = Path(__file__).parent.parent
PAGES_OF_PROTOCOL = sorted(ROOT.glob("docs/protocol/*.md"))
PROTOCOL = "\n".join(page.read_text() for page in PAGES_OF_PROTOCOL)
CHAT = (ROOT / "docs/protocol/chat.md").read_text()
ROUTES = (ROOT / "docs/protocol/routes.md").read_text()
COMMANDS = (ROOT / "docs/operations/commands.md").read_text()
WATCHING = (ROOT / "docs/operations/watching.md").read_text()


def section(text: str, title: str) -> str:
    """What stands under the heading `title`, up to the next of its kind."""
    begin = text.index(title) + len(title)
    end = re.search(r"^##+ ", text[begin:], re.MULTILINE)
    return text[begin : begin + end.start()] if end else text[begin:]


def first_cells(text: str) -> set[str]:
    return {name for row in re.findall(r"^\| (.*?) \|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_that_is_made_from_the_code_is_as_the_code_is(name: str) -> None:
    """`make tables` writes them."""
    table = TABLES[name]
    assert table.written() == (ROOT / table.page).read_text()


def test_a_table_needs_its_place_on_the_page() -> None:
    with pytest.raises(ValueError, match=r"needs the lines <no such mark>"):
        Table("docs/operations/settings.md", "<no such mark>", "<nor this>", str).written()


PAGES_AS_THEY_ARE = {str(path.relative_to(ROOT)): path.read_text() for path in public_names.PAGES}


@pytest.mark.parametrize("kind", KINDS)
def test_code_and_docs_have_the_same_names(kind: str) -> None:
    """`python -m tests.support.public_names` says all differences."""
    assert differences(KINDS[kind], PAGES_AS_THEY_ARE) == []


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        ("setting", "`HOLDFAST_PROT=1`", "`HOLDFAST_PORT=1`, `HOLDFAST_LIMIT_*`, `HOLDFAST_TEST_X`"),
        ("route", "`GET /api/sandboxs`", "`GET /api/sandboxes`, `POST /api/sandboxes/first/wake`, `GET /files/{id}/`"),
        ("close code", "closed with 4455", "closed with 4408, at 44080"),
        ("nack", "hear `nack storage_fool`", 'hear `nack storage_full`, `nack{cid, reason: "invalid", error}`'),
        ("metric", "`holdfast_queue_dept` grows", "`holdfast_queue_depth`, `holdfast_message_seconds_bucket`"),
    ],
)
def test_a_name_that_the_code_does_not_have_is_found(kind: str, wrong: str, right: str) -> None:
    assert differences(KINDS[kind], {"page": right}) == []
    (found,) = differences(KINDS[kind], {"page": f"{wrong}, {right}"})
    assert found.startswith("page: ")
    assert found.endswith("is not in the code")


def test_a_name_that_the_docs_do_not_have_is_found() -> None:
    new = replace(KINDS["nack"], code=lambda: {*NACKS, "new_reason"}, more=lambda: {"unheard_of"})
    assert differences(new, {}) == [
        "new_reason is in the code and not in the table of nacks",
        "unheard_of is used in the code and declared nowhere",
    ]


def test_every_command_is_documented() -> None:
    written = set(re.findall(r"^    holdfast ([a-z-]+)", COMMANDS, re.MULTILINE))
    (actions,) = (each for each in parser()._actions if each.dest == "command")
    assert written == set(actions.choices or ())


def test_every_route_is_in_the_table_as_it_is_declared() -> None:
    table = ROUTES.partition(BEGIN)[2].partition(END)[0].partition("| answer |")[0]
    assert first_cells(table) == {f"{spec.method} {spec.path}" for spec in SPECS}


def test_every_websocket_has_its_section() -> None:
    sockets = {found.split("?")[0] for found in re.findall(r"socket: `GET ([^`]+)`", PROTOCOL)}
    assert sockets == {spec.path for spec in SPECS if spec.method == WS}


def test_every_frame_the_gateway_says_is_documented() -> None:
    documented = first_cells(section(CHAT, "## Frames from the gateway"))
    assert documented == set(chat_frames.OWN_TYPES) | {"done", "error"}


@pytest.mark.parametrize("kind", sorted(first_cells(section(CHAT, "## Frames from the browser"))))
def test_every_documented_frame_of_a_browser_is_understood(kind: str) -> None:
    members = b'"content":"x","requestId":"r","token":"t"'
    assert chat_frames.read_frame(b'{"type":"%s",%s}' % (kind.encode(), members)).type == kind


def test_every_frame_a_browser_may_send_is_documented() -> None:
    documented = first_cells(section(CHAT, "## Frames from the browser"))
    source = (ROOT / "gateway/protocol/chat_frames.py").read_text()
    understood = {
        name
        for case in re.findall(r"^        case (\".*\"):", source, re.MULTILINE)
        for name in re.findall(r'"(\w+)"', case)
    }
    assert documented == understood


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.md")])
OWN_PATH = re.compile(
    r"`((?:gateway|persistence|sandbox|sync|tests|bench|docs|deploy)/[\w/.-]*)`|\]\((?!https?:)([^)#]+)\)"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_a_page_names_exists(page: Path) -> None:
    named = [(ROOT / path) if path else (page.parent / link) for path, link in OWN_PATH.findall(page.read_text())]
    assert [str(path) for path in named if not path.exists()] == []


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_heading_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text())
    named = [(page.parent / path if path else page, anchor) for path, anchor in links]
    assert [f"{path}#{anchor}" for path, anchor in named if anchor not in anchors(path)] == []


@pytest.mark.parametrize("folder", ["protocol", "operations"])
def test_the_first_page_of_a_folder_lists_the_others(folder: str) -> None:
    pages = ROOT / "docs" / folder
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", (pages / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({page.name for page in pages.glob("*.md")} - {"README.md"})


def test_the_glossary_can_be_looked_up() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    words = re.findall(r"^\| ([a-z].*?) \|", section(page, "## Words"), re.MULTILINE)[1:]
    assert len(words) >= 30
    assert words == sorted(words, key=str.lower)


def test_every_promise_of_the_readme_names_what_proves_it() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section(readme, "## Promises, and what proves each"), re.MULTILINE)[1:]
    assert len(rows) >= 7
    for promise, proof in rows:
        assert re.findall(r"`tests/[\w/]+(?:\.py)?`", proof), promise
