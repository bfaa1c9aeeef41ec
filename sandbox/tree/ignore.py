"""The parts of a tree that are left out: gitignore patterns, one set for each root.

Those of `workspace` are in its file `.holdfastignore`, which is always kept; those of `agent` come with the scan. A
meaningless pattern is an error: its author thinks that something is left out, or kept.

As in git, the last pattern that matches a path decides, and everything in a directory that is left out is left out. A
walk asks on its way down, so a pattern is matched against the path itself and never against a parent. Each pattern
becomes a regular expression of exactly that, and all of them together one, the last pattern first.

Nothing else runs while an expression is matched, so none may take long. Of the `*` in one component only the last has
to be tried in more than one place; each `**` multiplies the places to try, so only a few are allowed.
"""

import errno
import os
import re
import stat
import warnings
from collections.abc import Sequence
from typing import Final

from blake3 import blake3
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from sandbox.system.problem import TreeProblem, UnreadableFile, is_forbidden, printable

IGNORE_FILE: Final = ".holdfastignore"
MAX_IGNORE_BYTES: Final = 64 << 10
MOST_STARS: Final = 8  # in one component; several in a row are one
MOST_DOUBLE_STARS: Final = 3  # components `**` of one pattern
MOST_DECISIONS: Final = 100_000  # remembered; when there are more, all are forgotten
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_NEWLINE: Final = "\udc0a"  # no decoded name contains it
_STAR, _ONE = "[^/]*", "[^/]"  # the expressions for `*` and `?`
_STARS: Final = re.compile(rf"(?:{re.escape(_STAR)})+")
_NOT_LAST: Final = re.compile(  # a `*` and the text behind it, up to the next one in the same component
    rf"{re.escape(_STAR)}((?:{re.escape(_ONE)}(?!\*)|(?!{re.escape(_ONE)})[^/])+)(?={re.escape(_STAR)})"
)
_DOUBLE_STARS: Final = ("(?:.+/)?", "(?:/.+)?")
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Rules:
    """Patterns, and the decisions made by them. `source` is their origin, for people."""

    def __init__(self, text: bytes, source: str, always_kept: str = "") -> None:
        """Raises TreeProblem if a line of `text` is no pattern."""
        self.text = text
        self.fingerprint = blake3(text).digest()
        self._always_kept = always_kept
        self._decided: dict[str, bool] = {}
        lines = os.fsdecode(text.removeprefix(_BYTE_ORDER_MARK)).split("\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about what `[[` may mean one day
            read = [_translate(line, f"{source}, line {number}") for number, line in enumerate(lines, 1)]
            patterns = [pattern for pattern in reversed(read) if pattern is not None]
            self._leaves_out = [leaves_out for _, leaves_out in patterns]
            self._any = re.compile("|".join(f"({expression})" for expression, _ in patterns))

    def ignore(self, path: str, *, is_directory: bool) -> bool:
        """Whether `path`, relative to its root, is left out. Its parents are not."""
        if not self._leaves_out or path == self._always_kept:
            return False
        asked = f"{path}/" if is_directory else path
        decision = self._decided.get(asked)
        if decision is None:
            if len(self._decided) >= MOST_DECISIONS:
                self._decided.clear()
            # For an expression a newline would be no character, or the end of the text.
            match = self._any.match(asked.replace("\n", _NEWLINE))
            decision = match is not None and self._leaves_out[(match.lastindex or 0) - 1]
            self._decided[asked] = decision
        return decision


def workspace_rules(root: int, before: Rules | None) -> Rules:
    """The rules in the ignore file of the open directory `root`; `before` itself if nothing in it has changed. Raises
    TreeProblem."""
    try:
        text = _read(root)
    except FileNotFoundError:
        text = b""
    except OSError as error:
        reason = "it is a symlink" if error.errno == errno.ELOOP else error.strerror
        kind = UnreadableFile if is_forbidden(error) else TreeProblem
        raise kind("failed", f"{IGNORE_FILE} cannot be read: {reason}") from error
    return before if before is not None and before.text == text else Rules(text, IGNORE_FILE, IGNORE_FILE)


def agent_rules(patterns: Sequence[str], before: Rules | None) -> Rules:
    """The same for the patterns that came with a scan."""
    text = "\n".join(patterns).encode("utf-8", "surrogatepass")
    return before if before is not None and before.text == text else Rules(text, "what to skip of the agent's home")


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise ValueError with the reason unless these can be patterns for the agent's home. Pure."""
    try:
        agent_rules(patterns, None)
    except TreeProblem as problem:
        raise ValueError(problem.error) from None


def _read(root: int) -> bytes:
    fd = os.open(IGNORE_FILE, _OPEN, dir_fd=root)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise TreeProblem("failed", f"{IGNORE_FILE} cannot be read: it is not a file")
        text = os.read(fd, MAX_IGNORE_BYTES + 1)
    finally:
        os.close(fd)
    if len(text) > MAX_IGNORE_BYTES:
        raise TreeProblem("failed", f"{IGNORE_FILE} is longer than {MAX_IGNORE_BYTES} bytes")
    return text


def _translate(line: str, place: str) -> tuple[str, bool] | None:
    """An expression that matches the paths that `line` means, and whether it leaves them out; None if it says nothing.
    A directory's path ends with a slash. Raises TreeProblem."""
    stripped = line.strip()
    if stripped in ("", "/") or line.startswith("#"):
        return None
    if stripped.endswith("/**/"):
        line = line.rstrip() + "*/"  # the directories in it, and not itself, as pathspec has it
    try:
        expression, leaves_out = GitIgnoreSpecPattern.pattern_to_regex(line)
        if expression is None or leaves_out is None or "[[:" in line:  # such a class is not understood
            raise ValueError(line)
        expression = _STARS.sub(lambda _: _STAR, expression)
        exact = _exact(_quick(expression))
        re.compile(exact)
    except (ValueError, re.error):
        raise TreeProblem("failed", f"{place}: this is no pattern: {printable(os.fsencode(stripped))}") from None
    components = expression.replace(_STAR, "\0").replace(_ONE, "\1").split("/")
    if max(component.count("\0") for component in components) > MOST_STARS:
        reason = f"more than {MOST_STARS} `*` between two slashes"
    elif sum(map(expression.count, _DOUBLE_STARS)) > MOST_DOUBLE_STARS:
        reason = f"more than {MOST_DOUBLE_STARS} `**`"
    else:
        return exact, leaves_out
    raise TreeProblem("failed", f"{place}: this pattern has {reason}: {printable(os.fsencode(stripped))}")


def _quick(expression: str) -> str:
    """The text between two `*` has a fixed length, so its first match may be taken for good."""
    return _NOT_LAST.sub(lambda match: f"(?>{_STAR}?{match[1]})", expression)


def _exact(expression: str) -> str:
    """pathspec's expressions match a path also for the sake of a parent; these do not."""
    anchored = expression if expression.startswith("^") else f"^.*{expression}"
    if expression.endswith("/"):
        anchored += "."  # `a/**` is all that is in `a`
    elif expression != ".":
        anchored += r"\Z"
    return anchored.replace("(?P<ps_d>/)", "/").replace("[^", "[^/").replace("[^//", "[^/")
