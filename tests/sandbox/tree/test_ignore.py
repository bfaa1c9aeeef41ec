"""What is left out, by the same rules as in git."""

import fnmatch
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.protocol.tree import SurveyAsk, TreeLimits
from sandbox.system.problem import TreeProblem
from sandbox.tree import ignore
from sandbox.tree.ignore import MAX_IGNORE_BYTES, Rules, agent_rules, check_patterns, workspace_rules
from sandbox.tree.scan import TreeScanner
from tests.sandbox.scans import Keeper, hours_later, make_home, tick

NAMES = ("a", "b", "keep.log", "x.log", "ab", "a b", "-a", "#a", "né")
PARTS = st.sampled_from([*NAMES, "*", "**", "*.log", "?", "a*", "[ab]", "[!a]", "[^x].log", r"\#a", "*b"])
PATTERNS = st.builds(
    lambda negated, anchored, parts, directory: f"{negated}{anchored}{'/'.join(parts)}{directory}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
)
TREE = [f"{above}{name}" for above in ("", "d/", "d/a/", "a/b/", "b/ab/a/", "a/a/a/") for name in ("f", *NAMES[2:])]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("there is no git to compare with")
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", root], check=True)
    for path in TREE:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"")
    return root


def kept(rules: Rules, paths: list[str]) -> set[str]:
    def is_kept(path: str) -> bool:
        above = [path[:at] for at, char in enumerate(path) if char == "/"]
        ignored = any(rules.ignore(directory, is_directory=True) for directory in above)
        return not ignored and not rules.ignore(path, is_directory=False)

    return {path for path in paths if is_kept(path)}


@settings(max_examples=120, deadline=None)
@given(patterns=st.lists(PATTERNS, min_size=1, max_size=5))
def test_git_leaves_out_the_same(repository: Path, patterns: list[str]) -> None:
    (repository / ".git" / "patterns").write_text("\n".join(patterns) + "\n")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-from=.git/patterns"],
        cwd=repository,
        check=True,
        capture_output=True,
    )
    by_git = set(os.fsdecode(listed.stdout).split("\0")) - {""}
    assert kept(Rules("\n".join(patterns).encode(), "test"), TREE) == by_git


def test_all_but_some_is_an_idiom_that_works() -> None:
    rules = Rules(b"*\n!*/\n!*.py\n", "test")
    assert kept(rules, ["a.py", "a.c", "d/e/b.py", "d/e/b.c"]) == {"a.py", "d/e/b.py"}


def test_comments_and_blank_lines_say_nothing() -> None:
    rules = Rules(b"\xef\xbb\xbf# a comment\n\n   \n/\n\r\n*.o\r\n", "test")
    assert kept(rules, ["# a comment", "a.o", "a.c"]) == {"# a comment", "a.c"}
    assert not Rules(b"", "test").ignore("anything", is_directory=True)


def test_a_newline_is_a_character_of_a_name_and_not_its_end() -> None:
    rules = Rules(b"name\nd/*.log\n", "test")
    assert kept(rules, ["name\n", "name", "d/a\nb.log", "a\nb/name"]) == {"name\n"}


def test_a_class_of_characters_never_holds_the_slash() -> None:
    assert kept(Rules(b"a[!x]b\n", "test"), ["a/b", "a-b"]) == {"a/b"}


def test_names_that_are_no_text_can_be_left_out() -> None:
    rules = Rules(b"\xff*\n", "test")
    assert kept(rules, [os.fsdecode(b"\xffa"), os.fsdecode(b"\xfea")]) == {os.fsdecode(b"\xfea")}


@pytest.mark.parametrize("pattern", ["[", "a[b", "!", "trailing\\", "[[:alpha:]]x", "[z-a]"])
def test_a_pattern_that_means_nothing_is_named(pattern: str) -> None:
    with pytest.raises(TreeProblem) as problem:
        Rules(f"*.o\n{pattern}\n".encode(), ".holdfastignore")
    assert problem.value.code == "failed"
    assert problem.value.error.startswith(".holdfastignore, line 2: ")
    assert pattern in problem.value.error.replace("\\\\", "\\")


@pytest.mark.parametrize(
    "pattern", ["a" + "*a" * 9, "x/?*[a-c]*?*a*a*a*a*a*a*/y", "a/**/b/**/c/**/d/**/e", "**/a" + "/**/a" * 3]
)
def test_a_pattern_that_would_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(TreeProblem, match=r"^\.holdfastignore, line 2: this pattern has more than [0-9] `") as problem:
        Rules(f"*.o\n{pattern}\n".encode(), ".holdfastignore")
    assert pattern in problem.value.error
    with pytest.raises(ValueError, match="this pattern has more than"):
        check_patterns(["*.o", pattern])


def test_many_stars_that_match_nothing_take_no_time() -> None:
    """With each of them tried in each place this would take years."""
    rules = Rules(b"/".join([b"a*" * 8 + b"b"] * 3), "test")
    assert not rules.ignore("/".join(["ab" * 127] * 3) + "c", is_directory=False)
    assert not Rules(b"*a" * 8 + b"b", "test").ignore("a" * 255, is_directory=False)


@settings(deadline=None)
@given(
    pattern=st.lists(st.sampled_from(["*", "*", "**", "?", "a", "b", "[ab]", "[!a]"]), min_size=1, max_size=9).map(
        "".join
    ),
    name=st.text("abc", min_size=1, max_size=12),
)
def test_stars_match_what_they_match_elsewhere(pattern: str, name: str) -> None:
    assert Rules(f"/{pattern}".encode(), "test").ignore(name, is_directory=False) == fnmatch.fnmatchcase(name, pattern)


def test_patterns_can_be_checked_without_a_tree() -> None:
    check_patterns([])
    check_patterns(["/.cache/", "!*.log", "a/**/b", "*a*b*c*"])
    with pytest.raises(ValueError, match=r"^what to skip of the agent's home, line 2: this is no pattern: \["):
        check_patterns(["a", "["])


def test_a_problem_is_told_in_one_printable_line() -> None:
    with pytest.raises(TreeProblem) as problem:
        Rules(b"\x1b]0;\xe2\x80\xae[\n", ".holdfastignore")
    assert problem.value.error.isprintable()


def test_decisions_are_remembered_and_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignore, "MOST_DECISIONS", 3)
    rules = Rules(b"*.o\n", "test")
    for _ in range(2):
        for number in range(10):
            assert rules.ignore(f"{number}.o", is_directory=False)
            assert not rules.ignore(f"{number}.c", is_directory=False)


def test_rules_that_have_not_changed_are_the_same_rules(tmp_path: Path) -> None:
    assert agent_rules(("a",), agent_rules(("a",), None)).ignore("a", is_directory=False)
    first = agent_rules(("a", "b"), None)
    assert agent_rules(("a", "b"), first) is first
    assert agent_rules(("a",), first).fingerprint != first.fingerprint
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        before = workspace_rules(root, None)
        assert workspace_rules(root, before) is before
        (tmp_path / ".holdfastignore").write_text("*.o")
        assert workspace_rules(root, before) is not before
    finally:
        os.close(root)


# -- in a scan --------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path / "home")


@pytest.fixture
def keeper(home: Path, tmp_path: Path) -> Keeper:
    return Keeper(TreeScanner(home, tmp_path / "cache", hours_later))


def write(home: Path, *paths: str) -> None:
    for path in paths:
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(path)


def files(keeper: Keeper) -> set[str]:
    return {os.fsdecode(path) for path, entry in keeper.tree.items() if entry.kind == 0}


def test_what_the_ignore_file_names_is_left_out_of_the_workspace_only(home: Path, keeper: Keeper) -> None:
    write(home, "workspace/a.o", "workspace/d/b.o", "workspace/d/b.c", "workspace/build/x/y", "agent/a.o")
    (home / "workspace/.holdfastignore").write_text("*\n!*.c\n!d/\n")
    done = keeper.sync()
    assert files(keeper) == {"workspace/.holdfastignore", "workspace/d/b.c", "agent/a.o"}
    assert done.files == 3


def test_what_the_scan_says_is_left_out_of_agent_only(home: Path, keeper: Keeper) -> None:
    write(home, "workspace/.cache/a", "agent/.cache/a", "agent/d/.cache/b", "agent/kept")
    keeper.sync(agent_skip=["/.cache/"])
    assert files(keeper) == {"workspace/.cache/a", "agent/d/.cache/b", "agent/kept"}


def test_new_rules_remove_and_bring_back(home: Path, keeper: Keeper) -> None:
    write(home, "workspace/d/a.o", "workspace/d/e/b.o", "workspace/c", "agent/x/y")
    everything = {"workspace/d/a.o", "workspace/d/e/b.o", "workspace/c", "agent/x/y"}
    keeper.sync()
    assert files(keeper) == everything
    (home / "workspace/.holdfastignore").write_text("d\n")
    keeper.sync(agent_skip=["x"])
    assert files(keeper) == {"workspace/.holdfastignore", "workspace/c"}
    assert keeper.removed_told == {os.fsencode(f"{path}") for path in everything - {"workspace/c"}} | {
        b"workspace/d",
        b"workspace/d/e",
        b"agent/x",
    }
    assert keeper.sync(agent_skip=["x"]).read_bytes == 0
    assert not keeper.told
    (home / "workspace/.holdfastignore").unlink()
    keeper.sync()
    assert files(keeper) == everything


def test_a_restarted_bridge_knows_by_which_rules_it_read(home: Path, keeper: Keeper, tmp_path: Path) -> None:
    write(home, "workspace/a.o", "workspace/b")
    keeper.sync()
    keeper.scanner = TreeScanner(home, tmp_path / "cache", hours_later)
    (home / "workspace/.holdfastignore").write_text("*.o\n")
    keeper.sync()
    assert files(keeper) == {"workspace/.holdfastignore", "workspace/b"}
    keeper.scanner = TreeScanner(home, tmp_path / "cache", hours_later)
    assert keeper.survey() == (keeper.token, 0, 2)


def test_what_is_left_out_counts_for_no_limit(home: Path, keeper: Keeper) -> None:
    write(home, *(f"workspace/many/{number}" for number in range(50)), "workspace/one")
    with pytest.raises(TreeProblem, match="more than 10 files"):
        keeper.sync(limits=TreeLimits(files=10))
    (home / "workspace/.holdfastignore").write_text("many/*\n")
    keeper.sync(limits=TreeLimits(files=10))
    assert files(keeper) == {"workspace/.holdfastignore", "workspace/one"}


def test_an_ignore_file_that_cannot_be_used_stops_the_scan_and_not_a_survey(home: Path, keeper: Keeper) -> None:
    path = home / "workspace" / ".holdfastignore"
    write(home, "workspace/a")
    path.write_text("[")
    with pytest.raises(TreeProblem, match="line 1: this is no pattern"):
        keeper.sync()
    assert keeper.survey() == (None, 0, 2)
    path.write_bytes(b"#" * (MAX_IGNORE_BYTES + 1))
    with pytest.raises(TreeProblem, match="longer than 65536 bytes"):
        keeper.sync()
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(TreeProblem, match="it is a symlink"):
        keeper.sync()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(TreeProblem, match="not a file"):
        keeper.sync()
    path.unlink()
    path.mkdir()
    with pytest.raises(TreeProblem, match="not a file"):
        keeper.sync()
    path.rmdir()
    keeper.sync()
    with pytest.raises(TreeProblem, match="what to skip of the agent's home, line 2"):
        keeper.sync(agent_skip=["a", "["])


def test_a_survey_looks_by_the_rules(home: Path, keeper: Keeper) -> None:
    write(home, "workspace/a.o", "agent/skipped", "agent/kept")
    (home / "workspace/.holdfastignore").write_text("*.o\n")
    keeper.sync(agent_skip=["skipped"])
    tick(home)
    write(home, "workspace/b.o")
    _, changed, files = keeper.scanner.survey(SurveyAsk(("skipped",)))
    assert (changed, files) == (0, 2)
    assert keeper.survey() == (keeper.token, 1, 3)
